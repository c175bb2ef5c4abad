"""Human approval of calls: requests, decisions, reviewers and stores."""

from __future__ import annotations

from toolsemble.runtime.lazy import loader

# Not from typing: importing that would take longer than all the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.review.audit import ReviewEvent
    from toolsemble.review.automatic import AutoApprove, AutoReject, CallbackReview
    from toolsemble.review.console import ConsoleReview
    from toolsemble.review.decision import Continue, Edit, ExitEarly, ReviewDecision
    from toolsemble.review.queue import QueueReview
    from toolsemble.review.receipt import Receipt
    from toolsemble.review.remember import RememberReview
    from toolsemble.review.request import ReviewHandler, ReviewRequest
    from toolsemble.review.rules import Rule, RulesReview
    from toolsemble.review.store import MemoryStore, ReviewStore, SQLiteStore
    from toolsemble.review.terms import OnTimeout, ReviewTiming
    from toolsemble.review.webhook import WebhookReview

__all__ = [
    "AutoApprove",
    "AutoReject",
    "CallbackReview",
    "ConsoleReview",
    "Continue",
    "Edit",
    "ExitEarly",
    "MemoryStore",
    "OnTimeout",
    "QueueReview",
    "Receipt",
    "RememberReview",
    "ReviewDecision",
    "ReviewEvent",
    "ReviewHandler",
    "ReviewRequest",
    "ReviewStore",
    "ReviewTiming",
    "Rule",
    "RulesReview",
    "SQLiteStore",
    "WebhookReview",
]

# Loaded on first use: most tools need no reviewer, and most reviewers no terminal, database or web server.
__getattr__ = loader(
    globals(),
    {
        "automatic": ("AutoApprove", "AutoReject", "CallbackReview"),
        "console": ("ConsoleReview",),
        "audit": ("ReviewEvent",),
        "decision": ("Continue", "Edit", "ExitEarly", "ReviewDecision"),
        "queue": ("QueueReview",),
        "receipt": ("Receipt",),
        "remember": ("RememberReview",),
        "request": ("ReviewHandler", "ReviewRequest"),
        "rules": ("Rule", "RulesReview"),
        "store": ("MemoryStore", "ReviewStore", "SQLiteStore"),
        "terms": ("OnTimeout", "ReviewTiming"),
        "webhook": ("WebhookReview",),
    },
)
