"""Version of the project, in one place."""

VERSION = "0.2.0"
