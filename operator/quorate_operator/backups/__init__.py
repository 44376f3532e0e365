"""The custom resource QuorumBackup: a Deployment or a CronJob that backs up a Quorum.

`loop` reads each resource and its objects (`observe`), decides without I/O (`plan`), writes objects
(`manifests`), and reports (`status`). It keeps no state that a decision needs. The pods run
`quorate backup create` in the Quorum's image. The operator never sees the archive.
"""
