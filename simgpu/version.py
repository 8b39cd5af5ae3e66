"""The version of the project, in one place."""

VERSION = "0.1.0"
