"""Loads a recording through LangChain and prints its documents, as JSON: langchain_client.py URL RECORDING."""

import contextlib
import json
import os
import sys
import time

from langchain_community.document_loaders.parsers.audio import OpenAIWhisperParser
from langchain_core.documents.base import Blob

URL, RECORDING = sys.argv[1:]

time.sleep = lambda _: None  # the parser waits for 5 s after each failure


def load(**options: object) -> list[dict]:
    parser = OpenAIWhisperParser(api_key=os.environ.get("OPENAI_API_KEY", "none"), base_url=URL, **options)
    with contextlib.redirect_stdout(sys.stderr):
        documents = list(parser.lazy_parse(Blob.from_path(RECORDING)))
    return [{"text": document.page_content, "metadata": document.metadata} for document in documents]


print(
    json.dumps(
        {
            "plain": load(),
            "options": load(language="en", prompt="Names: Ada.", temperature=0.0, response_format="text"),
            "wrong_language": load(language="xx"),
        }
    )
)
