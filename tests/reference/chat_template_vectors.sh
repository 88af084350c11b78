#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the chat templates of $1 (render_template) with Jinja2.
exec "${COHORT_PYTHON:-python3}" "$(dirname "$0")/chat_template_vectors.py" "$@"
