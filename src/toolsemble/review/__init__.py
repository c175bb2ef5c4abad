"""Human approval of calls: requests, decisions, reviewers and stores."""

from __future__ import annotations

from toolsemble._runtime.lazy import export_lazily

# Not from typing: importing that would take longer than all the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.review._audit import ReviewEvent as ReviewEvent
    from toolsemble.review._automatic import (
        AutoApprove as AutoApprove,
        AutoReject as AutoReject,
        CallbackReview as CallbackReview,
    )
    from toolsemble.review._console import ConsoleReview as ConsoleReview
    from toolsemble.review._decision import (
        Continue as Continue,
        Edit as Edit,
        ExitEarly as ExitEarly,
        Reject as Reject,
        ReviewDecision as ReviewDecision,
    )
    from toolsemble.review._pause import PauseReview as PauseReview
    from toolsemble.review._queue import QueueReview as QueueReview
    from toolsemble.review._receipt import Receipt as Receipt
    from toolsemble.review._remember import RememberReview as RememberReview
    from toolsemble.review._request import ReviewHandler as ReviewHandler, ReviewRequest as ReviewRequest
    from toolsemble.review._rules import Rule as Rule, RulesReview as RulesReview
    from toolsemble.review._signed_rows import StoredRequest as StoredRequest
    from toolsemble.review._store import (
        MemoryStore as MemoryStore,
        ReviewStore as ReviewStore,
        SQLiteStore as SQLiteStore,
    )
    from toolsemble.review._terms import OnTimeout as OnTimeout, ReviewTiming as ReviewTiming
    from toolsemble.review._webhook import WebhookReview as WebhookReview
    from toolsemble.review._webhook_service import (
        WebhookMessage as WebhookMessage,
        read_webhook as read_webhook,
        sign_answer as sign_answer,
    )

# Loaded on first use: most tools need no reviewer, and most reviewers no terminal, database or web server.
__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "_automatic": ("AutoApprove", "AutoReject", "CallbackReview"),
        "_console": ("ConsoleReview",),
        "_audit": ("ReviewEvent",),
        "_decision": ("Continue", "Edit", "ExitEarly", "Reject", "ReviewDecision"),
        "_pause": ("PauseReview",),
        "_queue": ("QueueReview",),
        "_receipt": ("Receipt",),
        "_remember": ("RememberReview",),
        "_request": ("ReviewHandler", "ReviewRequest"),
        "_rules": ("Rule", "RulesReview"),
        "_signed_rows": ("StoredRequest",),
        "_store": ("MemoryStore", "ReviewStore", "SQLiteStore"),
        "_terms": ("OnTimeout", "ReviewTiming"),
        "_webhook": ("WebhookReview",),
        "_webhook_service": ("WebhookMessage", "read_webhook", "sign_answer"),
    },
)
