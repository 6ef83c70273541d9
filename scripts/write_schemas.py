"""Write the JSON Schemas of all files and of what `--json` prints to docs/schemas/; run it after changing one."""

import json
from pathlib import Path
from typing import Any

from lowtide.engine.costs import costs_schema
from lowtide.engine.graph import graph_schema
from lowtide.engine.plan import plan_schema
from lowtide.reporting.fields import KINDS, schema_of

FOLDER = Path(__file__).parent.parent / "docs" / "schemas"


def schemas() -> dict[str, dict[str, Any]]:
    """Return every schema by the name of its file."""
    return {
        name: {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
        for name, title, schema in (
            ("costs.schema.json", "lowtide costs file", costs_schema()),
            ("graph.schema.json", "lowtide graph file", graph_schema()),
            ("plan.schema.json", "lowtide plan file", plan_schema()),
            *((f"json/{kind}.schema.json", f"lowtide {kind} --json", schema_of(kind)) for kind in KINDS),
        )
    }


def main() -> None:
    """Write all schemas."""
    (FOLDER / "json").mkdir(parents=True, exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / name).write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
