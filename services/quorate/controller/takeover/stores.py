"""Kafka's key stores and trust stores: those that Quorate cannot read, and how to convert them.

Source: Kafka's SslConfigs; KIP-651; the documentation of keytool and openssl.
"""

from __future__ import annotations

from collections.abc import Iterator

from quorate.controller.takeover.kafka_settings import KafkaSettings

KEY_STORE, TRUST_STORE = "ssl.keystore", "ssl.truststore"

_COMMANDS = {
    KEY_STORE: "keytool -importkeystore -srckeystore {file} -destkeystore key.p12 -deststoretype "
    "PKCS12; openssl pkcs12 -in key.p12 -nodes -out key.pem",
    TRUST_STORE: "keytool -list -rfc -keystore {file} > ca.pem",
}
_CONVERTED = {KEY_STORE: "key.pem", TRUST_STORE: "ca.pem"}


def unusable_stores(kafka: KafkaSettings) -> Iterator[tuple[str, str]]:
    """The settings that name a Java store, each with how to convert the store to PEM."""
    for store in (KEY_STORE, TRUST_STORE):
        kind = _kind(kafka, store)
        if kind.upper() == "PEM":
            continue
        named = [kafka.name_for(f"{store}.{each}") for each in ("type", "location")]
        commands = _COMMANDS[store].format(file=kafka.texts.get(named[1], "STORE"))
        reason = (
            f"a {kind} store is not supported: convert it to PEM with `{commands}`, and set "
            f"{store}.type=PEM and {store}.location={_CONVERTED[store]}"
        )
        yield next(each for each in named if each in kafka.texts), reason


def _kind(kafka: KafkaSettings, store: str) -> str:
    """The type of a store. Kafka's default is JKS; it matters only if the store is used."""
    file = kafka.texts.get(kafka.name_for(f"{store}.location"))
    is_used = file is not None and kafka.protocol in ("SSL", "SASL_SSL")
    return kafka.texts.get(kafka.name_for(f"{store}.type"), "JKS" if is_used else "PEM")


def decryption(kafka: KafkaSettings) -> str:
    """How to decrypt the private key of Kafka's key store."""
    if _kind(kafka, KEY_STORE).upper() != "PEM":
        return "the conversion of the key store to PEM decrypts the key"
    file = kafka.texts.get(kafka.name_for(f"{KEY_STORE}.location"), "STORE")
    return f"decrypt it with `openssl pkey -in {file} -out key.pem`, set ssl.key.location=key.pem"
