"""Human approval of calls: requests, decisions, reviewers and stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.review.decision import Continue, Edit, ExitEarly, ReviewDecision
from toolsemble.review.request import OnTimeout, ReviewHandler, ReviewRequest, ReviewTiming
from toolsemble.runtime.lazy import loader

if TYPE_CHECKING:
    from toolsemble.review.audit import ReviewEvent
    from toolsemble.review.automatic import AutoApprove, AutoReject, CallbackReview
    from toolsemble.review.console import ConsoleReview
    from toolsemble.review.queue import QueueReview
    from toolsemble.review.receipt import Receipt
    from toolsemble.review.remember import RememberReview
    from toolsemble.review.rules import Rule, RulesReview
    from toolsemble.review.store import MemoryStore, ReviewStore, SQLiteStore
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

# Loaded on first use: most programs need no terminal, database or web server.
__getattr__ = loader(
    globals(),
    {
        "automatic": ("AutoApprove", "AutoReject", "CallbackReview"),
        "console": ("ConsoleReview",),
        "audit": ("ReviewEvent",),
        "queue": ("QueueReview",),
        "receipt": ("Receipt",),
        "remember": ("RememberReview",),
        "rules": ("Rule", "RulesReview"),
        "store": ("MemoryStore", "ReviewStore", "SQLiteStore"),
        "webhook": ("WebhookReview",),
    },
)
