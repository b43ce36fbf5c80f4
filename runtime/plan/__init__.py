"""`interlock plan`: what a workload would take, before anything is sent.

    workload    lines of jobs with their calls, and what each comes after: frozen values
    rehearsal   from a pipeline and its input to such lines: its code runs, no model answers, no job works
    answers     what is made up meanwhile; guard: nothing leaves the process
    table       from a table of calls to such lines
    sizes       how large answers will be: from recorded calls, or from stated assumptions
    simulate    one possible run, on the live admission and virtual time; levels, series: what is seen of it
    limits      the limits it runs against, and one of them doubled
    forecast    many such runs, put together
    report      the answer in words and tables; picture, page: the levels over time as PNG and HTML

All but `rehearsal` and the last two are pure: the same arguments give the same forecast. Only the command line, and
whoever wants a forecast in a program, imports it.
"""
