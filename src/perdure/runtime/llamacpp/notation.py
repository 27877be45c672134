"""How models write what is not text: calls of functions, and what they write for themselves.

A call is exactly `<tool_call>\\n{"name": "NAME", "arguments": ARGS}\\n</tool_call>`. NAME is written as in a JSON
string. ARGS is one JSON object without free white space (one space may follow a comma or a colon), so that a raw
newline cannot occur in it. At most one newline stands between two calls, and after the first call only calls follow.

Reasoning stands at the start of an answer, with nothing but white space before it, and ends with the first closing
mark.
"""

TOOL_CALL = "tool_call"
"""The name of this notation in a `Shape`."""

CALL_MARK = "<tool_call>"
"""Where this begins outside of reasoning, a call follows."""
CALL_OPEN = CALL_MARK + '\n{"name": "'
CALL_ARGUMENTS = '", "arguments": '
CALL_CLOSE = "}\n</tool_call>"
CALL_BETWEEN = "\n"

RESULT_OPEN = "<tool_response>\n"
RESULT_CLOSE = "\n</tool_response>"

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
