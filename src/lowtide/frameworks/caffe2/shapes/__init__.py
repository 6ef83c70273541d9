"""The type and the shape of every blob: from the caller, or from what each op makes of its inputs."""
