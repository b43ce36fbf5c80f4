"""The command line, `interlock`: a thin layer over the runtime. Nothing imports it but the console script.

    app         the commands, their options and their help; runs_app, queue_app: those of the store;
                plan_app: that of `interlock plan`; options: those that several have
    failing     how an error is told: one sentence, exit code 2
    target      `pipelines.py:triage` to the pipeline it names, and what that takes
    lines       the input: one JSON object a line, checked before anything is sent
    progress    the results as they come, kept so that a run can go on, and their order at the end; places: whether a
                command writes over what it reads
    running     `interlock run`; arguments: from a line to the pipeline's parameters; watching: its progress bar;
                left: the runs that an earlier life of it left half way
    configuring its settings; interrupts: Ctrl-C while it runs; telling: what it says at its end
    embed       `interlock embed`; documents: from lines to documents; search: `interlock search`
    runs        `interlock runs`; queue: `interlock submit` and `interlock worker`
    decisions   `interlock decisions eval`
    plan        `interlock plan`
    calls       `interlock calls`
    catalog     `interlock catalog check | show`; credentials: `check --credentials`; discover: `discover`
    demo        `interlock demo`
    screen      standard output as rich draws on it

Each command imports what it needs when it is called, so `interlock --help` stays quick.
"""


def main() -> None:
    """The console script's entry point."""
    from .app import app

    app()
