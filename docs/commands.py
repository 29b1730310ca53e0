"""Write the reference of the command line from its own help: `python docs/commands.py > docs/commands.md`."""

from collections.abc import Iterator

import click

from s2s.cli.main import commands


def pages(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    """Yield a section for a command, and one for each of its subcommands."""
    # 100 columns fit a page of the documentation
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=100,
        max_content_width=100,
        help_option_names=commands.context_settings["help_option_names"],
    )
    level = "#" if parent is None else "##"
    title = "Command line" if parent is None else f"`{context.command_path}`"
    yield f"{level} {title}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from pages(found, each, context)


if __name__ == "__main__":
    print("\n".join(pages(commands, "s2s")), end="")
