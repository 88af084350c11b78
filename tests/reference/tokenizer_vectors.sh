#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tokenizer_vectors.sh BINARY: fetches the peer's vocabularies and vectors and runs BINARY over them.
set -eu
here=$(dirname "$0")
models=$(python3 "$here/fetch_peer.py")
exec "$1" "$models"
