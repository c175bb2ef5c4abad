"""Types of secret values, which pydantic defines; a separate module, because most tools do not need pydantic.

>>> str(Secret("hunter2")), Secret("hunter2").get_secret_value()
('**********', 'hunter2')
"""

from __future__ import annotations

from pydantic import Secret, SecretStr

__all__ = ["Secret", "SecretStr"]
