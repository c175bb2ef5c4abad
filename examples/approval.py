"""Ask a person at the terminal before a call runs, unless a rule decides.

No file is deleted. Run it in a terminal: ``python examples/approval.py``
"""

from toolsemble import Toolbox, ToolCall, tool
from toolsemble.review import ConsoleReview, RememberReview, Rule, RulesReview


@tool(requires_approval=True, approval_timeout=60)
def delete_file(path: str, *, recursive: bool = False) -> str:
    """Delete a file, or a folder with everything in it."""
    return f"(would delete {path}{' and everything in it' if recursive else ''})"


def main() -> None:
    """Execute three calls, as a model might request them in one turn, and print the replies."""
    rules = [Rule("allow", arguments={"path": "cache/*"}), Rule("deny", arguments={"path": "/etc/*"})]
    review = RulesReview(rules, ask=RememberReview(ConsoleReview()))
    paths = ["cache/old.bin", "/etc/passwd", "reports/2019"]
    calls = [ToolCall("delete_file", {"path": path, "recursive": "true"}) for path in paths]
    for reply in Toolbox([delete_file], review=review).execute_all(calls):
        print(reply.text)


if __name__ == "__main__":
    main()
