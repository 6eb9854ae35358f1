"""Writes the list of what is in a bundle: `sbom.json` (CycloneDX 1.6) and `requirements.txt` with digests.

    python deploy/sbom.py FOLDER

Both are made from the wheels in the folder, so that they describe the files that are shipped: a wheel that was built
here has another digest than its source on the index. Only the standard library is needed, since a bundle is made before
anything is installed. Tools such as cyclonedx-py read environments or lists of names, and not folders of wheels.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
import uuid
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

NAMESPACE = uuid.UUID("8d0a3c9e-5b0e-5a54-9d0f-0c5f2a6d1e77")  # of serial numbers; random, made once


def metadata(wheel: Path) -> Message:
    """The METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each))
        return Parser().parsestr(archive.read(name).decode("utf-8"))


def normal(name: str) -> str:
    """A name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(found: Message) -> list[dict[str, Any]]:
    """The licence of a package: its SPDX expression, its name, or those of its classifiers."""
    if expression := found.get("License-Expression"):
        return [{"expression": expression}]
    classifiers = [
        each.rpartition(" :: ")[2] for each in found.get_all("Classifier", []) if each.startswith("License ::")
    ]
    # Some packages have the whole text of their licence in this field.
    short = [each for each in [found.get("License") or ""] if each and "\n" not in each and len(each) < 100]
    return [{"license": {"name": name}} for name in classifiers or short or ["not stated"]]


def component(wheel: Path) -> dict[str, Any]:
    """One wheel as a component."""
    found = metadata(wheel)
    name, version = normal(str(found["Name"])), str(found["Version"])
    return {
        "type": "application" if name == "zerosum" else "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": licence(found),
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}],
        "properties": [{"name": "zerosum:file", "value": wheel.name}],
    }


def dependencies(wheels: list[Path], known: dict[str, str]) -> list[dict[str, Any]]:
    """What each wheel depends on, among the wheels of the bundle (`known`: references by name)."""
    lines = []
    for wheel in wheels:
        found = metadata(wheel)
        needed = {normal(re.split(r"[^\w.-]", each, maxsplit=1)[0]) for each in found.get_all("Requires-Dist", [])}
        # Optional parts that are not in the bundle are left out.
        lines.append(
            {"ref": known[normal(str(found["Name"]))], "dependsOn": sorted(known[each] for each in needed & set(known))}
        )
    return lines


def bill(folder: Path) -> dict[str, Any]:
    """The bill of materials of the wheels in a folder."""
    wheels = sorted(folder.glob("*.whl"))
    components = [component(wheel) for wheel in wheels]
    known = {each["name"]: each["bom-ref"] for each in components}
    own = next(each for each in components if each["name"] == "zerosum")
    # The same wheels have the same serial number.
    serial = uuid.uuid5(NAMESPACE, " ".join(each["hashes"][0]["content"] for each in components))
    # Reproducible builds set SOURCE_DATE_EPOCH.
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "component": own,
        },
        "components": [each for each in components if each is not own],
        "dependencies": dependencies(wheels, known),
    }


def pins(content: dict[str, Any]) -> str:
    """The same as requirements with digests, for `pip install --require-hashes`."""
    everything = [content["metadata"]["component"], *content["components"]]
    return "".join(
        f"{each['name']}=={each['version']} --hash=sha256:{each['hashes'][0]['content']}\n" for each in everything
    )


def main(folder: Path) -> None:
    """Write both files."""
    content = bill(folder)
    (folder / "sbom.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (folder / "requirements.txt").write_text(pins(content), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
