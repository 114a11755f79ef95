"""OpenAI-compatible Chat Completions: OpenAI itself, Ollama, vLLM, llama.cpp, OpenRouter and many more."""
