"""The `lakeward` command. Modules here import what is heavy inside the commands, so that --help is quick."""
