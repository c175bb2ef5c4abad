"""Human approval of calls: requests, decisions, reviewers and stores."""

from __future__ import annotations

from toolsemble._runtime.lazy import export_lazily

# Not from typing: importing it would take longer than the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.review._asking.ask import OuterReviewer as OuterReviewer
    from toolsemble.review._automatic import (
        AutoApprove as AutoApprove,
        AutoReject as AutoReject,
        CallbackReview as CallbackReview,
    )
    from toolsemble.review._console import ConsoleReview as ConsoleReview
    from toolsemble.review._pause import PauseReview as PauseReview
    from toolsemble.review._request import (
        BatchReviewer as BatchReviewer,
        Continue as Continue,
        Edit as Edit,
        ExitEarly as ExitEarly,
        Reject as Reject,
        ReviewDecision as ReviewDecision,
        Reviewer as Reviewer,
        ReviewEvent as ReviewEvent,
        ReviewHandler as ReviewHandler,
        ReviewRequest as ReviewRequest,
    )
    from toolsemble.review._rules.remember import RememberReview as RememberReview
    from toolsemble.review._rules.rules import Rule as Rule, RulesReview as RulesReview
    from toolsemble.review._store.queue import QueueReview as QueueReview
    from toolsemble.review._store.rows import Receipt as Receipt, StoredRequest as StoredRequest
    from toolsemble.review._store.store import (
        MemoryStore as MemoryStore,
        ReviewStore as ReviewStore,
        ReviewStoreProtocol as ReviewStoreProtocol,
    )
    from toolsemble.review._terms import OnTimeout as OnTimeout, ReviewTiming as ReviewTiming
    from toolsemble.review._webhook import (
        WebhookMessage as WebhookMessage,
        WebhookReview as WebhookReview,
        read_webhook as read_webhook,
        sign_answer as sign_answer,
    )

    SQLiteStore = ReviewStore

# Loaded on first use: most tools need no reviewer, and most reviewers need no terminal, database or web server.
__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "_asking.ask": ("OuterReviewer",),
        "_automatic": (
            "AutoApprove",
            "AutoReject",
            "CallbackReview",
        ),
        "_console": ("ConsoleReview",),
        "_request": (
            "BatchReviewer",
            "Continue",
            "Edit",
            "ExitEarly",
            "Reject",
            "ReviewDecision",
            "ReviewEvent",
            "ReviewHandler",
            "ReviewRequest",
            "Reviewer",
        ),
        "_pause": ("PauseReview",),
        "_store.queue": ("QueueReview",),
        "_rules.remember": ("RememberReview",),
        "_rules.rules": (
            "Rule",
            "RulesReview",
        ),
        "_store.rows": (
            "Receipt",
            "StoredRequest",
        ),
        "_store.store": (
            "MemoryStore",
            "ReviewStore",
            "ReviewStoreProtocol",
        ),
        "_terms": (
            "OnTimeout",
            "ReviewTiming",
        ),
        "_webhook": (
            "WebhookMessage",
            "WebhookReview",
            "read_webhook",
            "sign_answer",
        ),
    },
    renamed={"SQLiteStore": ("ReviewStore", "0.5")},
)
