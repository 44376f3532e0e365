"""Archives the committed log of a running quorum, and restores it into a new one.

An archive is a folder of objects, in a local directory or in an S3 bucket (`stores`):

    log/<base offset>-<end offset>.segment         batches of the log, byte for byte
    snapshots/<offset>-<epoch>.checkpoint          a checkpoint, byte for byte
    manifests/<generation>.json                    what belongs to the backup (`manifest`)

Rules:

1. Only committed records are archived. `archiver` reads them with linearizable Reads, control
   batches included, which the leader ends at an offset that a majority has confirmed. Read requires
   CLUSTER_ACTION on the cluster; no replica id is involved, so a backup never acknowledges records.
2. Objects never change. A manifest is written after the objects that it lists, under a name of its
   own, so each manifest describes a whole backup, whenever a later run is interrupted. The newest
   `KEPT_MANIFESTS` stay. An object is deleted an hour after new manifests ceased to list it, if no
   kept one does, so that an archive can be read while it is written.
3. A run is a checkpoint, or nothing at offset 0, and the batches that follow it without a gap. If
   the quorum has compacted records that are not archived yet, a new run begins with its newest
   checkpoint. Offsets between two runs cannot be restored.
4. Small segments are merged, `MERGED_COUNT` at a time, so that a continuous backup has few objects.
   With retention (`retention`), a long run is divided at a newer checkpoint of the quorum, and runs
   that no restore within the kept time needs are dropped, never the newest.
5. An archive belongs to one cluster id and one history. Before anything is added, the last archived
   batch is compared with the quorum's. Whatever differs ends the backup: another log was restored,
   or acknowledged records were lost.
6. A manifest contains its own SHA-256 and that of each object. `verify` reads all of them, checks
   every batch as a replica does, and compares offsets, epochs and times with the manifest, and
   checkpoints with the log before them (`comparison`).
7. A restore (`restore`) verifies all that it needs before it creates anything. It writes the
   archived batches with the log's own writer, up to the wanted offset, and appends one batch: a
   LeaderChange in an epoch above every archived one, then the changes of the voter set, one voter
   at a time, to the new replica alone. meta.properties is written last, so an interrupted restore
   leaves a directory that no controller starts on, and that the next restore begins anew.
8. With a key file, each object is encrypted between the archive and its store (`encryption`).
   Whether an archive is encrypted, the first bytes of its objects tell. The two kinds never mix.
9. The old cluster id stays only if no archived voter answers with it, and the user confirms for
   each that its directory is erased (`old_members`).
10. An offset may be inside a batch (`batches`). Of application records, the batch keeps those
    before the offset. The records of a metadata batch are one change, never restored in part.

Source: KIP-630 (checkpoints), KIP-853 (voter sets); `recovery` for forced epochs.
"""
