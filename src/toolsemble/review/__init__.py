"""Human approval of calls: requests, decisions, reviewers and stores."""

from __future__ import annotations

from toolsemble.runtime.lazy import export_lazily

# Not from typing: importing that would take longer than all the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.review.audit import ReviewEvent as ReviewEvent
    from toolsemble.review.automatic import (
        AutoApprove as AutoApprove,
        AutoReject as AutoReject,
        CallbackReview as CallbackReview,
    )
    from toolsemble.review.console import ConsoleReview as ConsoleReview
    from toolsemble.review.decision import (
        Continue as Continue,
        Edit as Edit,
        ExitEarly as ExitEarly,
        Reject as Reject,
        ReviewDecision as ReviewDecision,
    )
    from toolsemble.review.pause import PauseReview as PauseReview
    from toolsemble.review.queue import QueueReview as QueueReview
    from toolsemble.review.receipt import Receipt as Receipt
    from toolsemble.review.remember import RememberReview as RememberReview
    from toolsemble.review.request import ReviewHandler as ReviewHandler, ReviewRequest as ReviewRequest
    from toolsemble.review.rules import Rule as Rule, RulesReview as RulesReview
    from toolsemble.review.signed_rows import StoredRequest as StoredRequest
    from toolsemble.review.store import (
        MemoryStore as MemoryStore,
        ReviewStore as ReviewStore,
        SQLiteStore as SQLiteStore,
    )
    from toolsemble.review.terms import OnTimeout as OnTimeout, ReviewTiming as ReviewTiming
    from toolsemble.review.webhook import WebhookReview as WebhookReview
    from toolsemble.review.webhook_service import (
        WebhookMessage as WebhookMessage,
        read_webhook as read_webhook,
        sign_answer as sign_answer,
    )

# Loaded on first use: most tools need no reviewer, and most reviewers no terminal, database or web server.
__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "automatic": ("AutoApprove", "AutoReject", "CallbackReview"),
        "console": ("ConsoleReview",),
        "audit": ("ReviewEvent",),
        "decision": ("Continue", "Edit", "ExitEarly", "Reject", "ReviewDecision"),
        "pause": ("PauseReview",),
        "queue": ("QueueReview",),
        "receipt": ("Receipt",),
        "remember": ("RememberReview",),
        "request": ("ReviewHandler", "ReviewRequest"),
        "rules": ("Rule", "RulesReview"),
        "signed_rows": ("StoredRequest",),
        "store": ("MemoryStore", "ReviewStore", "SQLiteStore"),
        "terms": ("OnTimeout", "ReviewTiming"),
        "webhook": ("WebhookReview",),
        "webhook_service": ("WebhookMessage", "read_webhook", "sign_answer"),
    },
)
