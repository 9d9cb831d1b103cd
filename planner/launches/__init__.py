"""What launches a job: shell lines, manifests, trainers' configs and scripts, read without running anything."""

from __future__ import annotations
