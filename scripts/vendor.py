"""Copy the JavaScript libraries of the web interface into the package; run it to take a new version, then commit.

Each package is fetched with npm, compared with the digest below, and recorded in ``vendor.json``, which a test
compares with the files.
"""

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parents[1] / "src" / "toolsemble" / "_ui" / "static" / "vendor"
PACKAGES = {
    "preact@11.2.0": (
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"dist/preact.mjs": "preact.mjs", "hooks/dist/hooks.mjs": "hooks.mjs"},
    ),
    "htm@3.1.1": (
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.mjs": "htm.mjs"},
    ),
}


def fetch(package: str, digest: str, folder: Path) -> Path:
    """Return the unpacked folder of a package; raise unless it has the digest."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("vendor: npm is not installed")
    command = [npm, "pack", package, "--json", "--pack-destination", str(folder)]
    packed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603 - npm, with the names above
    archive = folder / packed[0]["filename"]
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != digest:
        raise SystemExit(f"vendor: {package} has the digest {found}, not {digest}")
    target = folder / package
    with tarfile.open(archive) as files:
        files.extractall(target, filter="data")
    return target / "package"


def adapt(text: str) -> str:
    """Return a module that imports its neighbor by path: a bare name would need an import map, an inline script."""
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL")]
    return "\n".join(lines).replace('from"preact"', 'from"./preact.mjs"') + "\n"


def main() -> None:
    """Write the modules, their licenses, and the record of both."""
    record: dict[str, dict[str, object]] = {}
    licenses: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        for package, (digest, modules) in PACKAGES.items():
            source = fetch(package, digest, Path(place))
            for origin, name in modules.items():
                (VENDOR / name).write_text(adapt((source / origin).read_text("utf-8")), "utf-8")
            names = list(modules.values())
            licenses.append(f"{package}: {', '.join(names)}\n\n{(source / 'LICENSE').read_text('utf-8').strip()}\n")
            digests = {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in names}
            record[package] = {"integrity": digest, "files": digests}
    (VENDOR / "LICENSES.txt").write_text(("\n" + "-" * 80 + "\n\n").join(licenses), "utf-8")
    (VENDOR / "vendor.json").write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    print(*sorted(each.name for each in VENDOR.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
