"""Write or check definitions in the charts' values.schema.json that are fields of the CRD.

    python tests/tools/values_schema.py write

Helm drops unknown fields of a custom resource without a word, so its values must be as strict.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from quorate_operator.crd import external, pod_schema, takeover_schema

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "charts/quorate/values.schema.json"
EXAMPLE = ROOT / "examples/kafka/chart/values.schema.json"
SCHEMAS: dict[Path, tuple[str, ...]] = {
    SCHEMA: (),
    EXAMPLE: ("labelSelector", "podTerm", "tolerations", "affinity"),
}
"""The schema files, and the definitions that each of them has; none named: all of them."""
WIDTH = 110
SHARED = ("tolerations", "affinity", "topologySpreadConstraints")
"""Fields of the Quorum's pod template that the operator's pods have, too."""
LEFT_OUT = ("description", "default", "format")


def definitions() -> dict[str, Any]:
    """The definitions, which refer to each other where they are equal."""
    selector = _strict(pod_schema.label_selector(), {})
    parts = {"labelSelector": selector}
    parts["podTerm"] = _strict(pod_schema.pod_term(), parts)
    template = pod_schema.pod_template()
    parts["peers"] = _strict(pod_schema.peers(""), parts)
    for name in SHARED:
        parts[name] = _strict(template["properties"][name], parts)
    parts["podTemplate"] = _strict(template, parts)
    parts["takeover"] = _strict(takeover_schema.takeover(), parts)
    parts["external"] = _strict(external.external_access(), parts)
    return parts


def _strict(schema: Any, parts: dict[str, Any]) -> Any:
    """A schema of the CRD as JSON schema without further fields."""
    if isinstance(schema, list):
        return [_strict(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "properties":
            found[name] = {field: _strict(each, parts) for field, each in value.items()}
            found["additionalProperties"] = False
        elif name not in LEFT_OUT and not name.startswith("x-kubernetes-"):
            found[name] = _strict(value, parts)
    same = (name for name, each in parts.items() if each == found)
    name = next(same, None)
    return found if name is None else {"$ref": f"#/definitions/{name}"}


def written(text: str, names: tuple[str, ...] = ()) -> str:
    """The schema file with the current definitions, which come before all others."""
    known = json.loads(text)["definitions"]
    made = {name: value for name, value in definitions().items() if not names or name in names}
    begin, end = text.index('  "definitions": {\n'), text.index('\n  "properties": {')
    merged = {**made, **{name: value for name, value in known.items() if name not in made}}
    return f'{text[:begin]}  "definitions": {_shown(merged, 2)},{text[end:]}'


def _shown(value: Any, indent: int) -> str:
    line = json.dumps(value)
    if len(line) + indent <= WIDTH or not isinstance(value, dict | list):
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {_shown(each, indent + 2)}" for k, each in value.items()]
        opening, closing = "{}"
    else:
        parts = [_shown(each, indent + 2) for each in value]
        opening, closing = "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{' ' * indent}{closing}"


def main() -> int:
    if sys.argv[1:] != ["write"]:
        print(__doc__)
        return 2
    for file, names in SCHEMAS.items():
        file.write_text(written(file.read_text(), names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
