"""How good a decision model's answers are, on examples whose answers are known; and how sure it should have been.

    labelled    the examples: a state, questions about it, the right answers
    metrics     accuracy, log-loss, calibration error, the threshold for a precision (pure)
    fitting     the temperature that makes a question's probabilities honest (pure)
    evaluation  every question's figures, before and after (pure)
    kept        answers as a file keeps them (pure)
    report      them as tables and as JSON; picture, page: the reliability diagrams as PNG and HTML

`interlock decisions eval` asks the model and shows it; docs/decisions.md says how to read it.
"""
