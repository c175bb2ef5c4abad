"""Types of secret values, which pydantic defines; in a module of their own, because most tools do without pydantic.

>>> str(Secret("hunter2")), Secret("hunter2").get_secret_value()
('**********', 'hunter2')
"""

from __future__ import annotations

from pydantic import Secret, SecretStr

__all__ = ["Secret", "SecretStr"]
