"""What locust's clients do: each asks for one translation after the other; see `serving.py`."""

import os
import random
from pathlib import Path

from locust import FastHttpUser, constant, task

SENTENCES = Path(os.environ["S2S_SENTENCES"]).read_text(encoding="utf-8").splitlines()


class Client(FastHttpUser):
    """Asks, and looks whether the answer is whole."""

    wait_time = constant(0)

    @task
    def translate(self) -> None:
        with self.client.post("/translate", json={"text": random.choice(SENTENCES)}, catch_response=True) as answer:
            translations = answer.json()["translations"] if answer.status_code == 200 else []
            if len(translations) != 1 or not translations[0]["text"]:
                answer.failure(f"status {answer.status_code}, {len(translations)} translations")
