"""Webhooks are signed as Standard Webhooks says, so that OpenAI's client verifies them."""

import base64

import openai
import pytest

from service.jobs import webhook
from service.jobs.job import Job

JOB = Job("job_1234", "me", "completed", "steno", b"{}", 3, 1000.0, 1001.0, 1002.5, 2000.0)
SECRETS = ("whsec_" + base64.b64encode(bytes(range(24))).decode(), "a secret of some length")


@pytest.mark.parametrize("secret", SECRETS)
def test_openais_client_verifies_the_signature(secret, monkeypatch):
    content = webhook.body(JOB)
    headers = webhook.headers(JOB, secret, content, 1003.0)
    monkeypatch.setattr("time.time", lambda: 1004.0)

    with openai.OpenAI(api_key="none") as client:
        client.webhooks.verify_signature(content, headers, secret=secret)
        with pytest.raises(openai.InvalidWebhookSignatureError):
            client.webhooks.verify_signature(content + b" ", headers, secret=secret)


def test_the_signature_of_the_specifications_example():
    """The example that the libraries of Standard Webhooks are tested with."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    job = Job("msg_p5jXN8AQM9LWM0D4loKWxJek", None, "completed", "m", b"", 0, 0.0)

    signed = webhook.headers(job, secret, b'{"test": 2432232314}', 1614265330.7)

    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signed["webhook-timestamp"] == "1614265330"


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ("", "has 16 to 512 characters, besides whsec_"),
        ("short", "has 16 to 512 characters, besides whsec_"),
        ("a" * 600, "has 16 to 512 characters, besides whsec_"),
        ("whsec_" + "a" * 12, "has 16 to 512 characters, besides whsec_"),
        ("whsec_not base 64 at all", "is base64 after whsec_"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8Ié===", "is base64 after whsec_"),
        ("a secret in Latin-1, \udce9", "is text in UTF-8"),
    ],
)
def test_invalid_secrets_are_refused(secret, message):
    with pytest.raises(ValueError, match=f"^a webhook's secret {message}$"):
        webhook.check_secret(secret)
