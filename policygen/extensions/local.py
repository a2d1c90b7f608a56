"""The provider `local:DIR` or `local:ORGANISATION/NAME`: a model in this process, by transformers (extra `local`)."""

# Imports inside functions are of optional packages.

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from policygen.errors import ProviderError, UsageError
from policygen.files import json_of, read
from policygen.llm.base import MOST_TOKENS, Diagnosis, LLMOptions, read_reply
from policygen.llm.messages import Prompt, Reply
from policygen.outgoing import shown

_FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja", "*.model")  # to download from the hub; none contains code
_ADAPTER = "adapter_config.json"
# The fields of an adapter's configuration that describe its weights. Other fields may name modules to import.
_LORA = (
    *("r", "lora_alpha", "target_modules", "exclude_modules", "fan_in_fan_out", "bias", "use_rslora", "use_dora"),
    *("modules_to_save", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern", "lora_bias"),
)


class LocalModel:
    """A chat model from a folder of safetensors with a tokenizer and a chat template, or from the Hugging Face hub.

    The folder may hold a LoRA adapter, whose base model is another folder or a name in the hub. The model runs on CUDA
    or MPS if available, else on the CPU. No code from its files runs. Every request has a seed, so that a run can be
    repeated on the same machine. `LLMOptions.extra_body` and `reasoning_effort` are variables for the chat template,
    such as {"enable_thinking": False}.

    Raises UsageError if the extra is not installed, or if the model cannot be used; the message says why.
    """

    is_language_model = True
    always_seeded = True

    def __init__(self, source: str, options: LLMOptions) -> None:
        self.spec, self.model = f"local:{source}", source
        self._options = options
        self._tokenizer, self._model = load_chat_model(source)
        self._model.eval()
        text_config = self._model.config.get_text_config()
        self.context = int(getattr(text_config, "max_position_embeddings", None) or MOST_TOKENS)
        ends, temperature = self._model.generation_config.eos_token_id, options.temperature
        self._ends = {*(ends if isinstance(ends, list) else [ends]), self._tokenizer.eos_token_id} - {None}
        # Temperature 0 means the most likely token; without a temperature, the model's own configuration applies.
        self._sampling: dict[str, Any] = {"do_sample": True, "temperature": temperature}
        if temperature is None:
            del self._sampling["temperature"]
        elif temperature == 0:
            self._sampling = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Answer `prompt`; raise ProviderError if the context is too short, or if the chat template refuses it."""
        import torch

        effort = self._options.reasoning_effort
        variables = ({"reasoning_effort": effort} if effort else {}) | (self._options.extra_body or {})
        messages = [asdict(message) for message in prompt.messages]
        try:
            encoded = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_tensors="pt", return_dict=True, **variables
            )
        except Exception as error:  # the template is a program by the model's author
            raise ProviderError(f"the chat template of {self.model} refuses the prompt: {_first_line(error)}") from None
        encoded = encoded.to(self._model.device)
        tokens_in = int(encoded["input_ids"].shape[1])
        if tokens_in >= self.context:
            raise ProviderError(
                f"the prompt has {tokens_in} tokens and {self.model} takes {self.context}: shorten prompts (--set "
                "prompt_tokens=N, or a --template of your own), or use a model with a longer context"
            )
        with torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(prompt.seed if prompt.seed is not None else torch.seed())
            try:
                output = self._model.generate(
                    **encoded,
                    **self._sampling,
                    max_new_tokens=min(max_output_tokens, self.context - tokens_in),
                    max_time=self._options.timeout_seconds,
                    use_cache=True,
                )
            except (RuntimeError, ValueError) as error:  # no memory left, or values that are not finite
                raise ProviderError(f"{self.model} failed to answer: {_first_line(error)}") from None
        answer = output[0, tokens_in:]
        ended = bool(len(answer)) and int(answer[-1]) in self._ends
        return read_reply(
            self._tokenizer.decode(answer, skip_special_tokens=True),
            self.model,
            tokens_in=tokens_in,
            tokens_out=len(answer),
            usd=0.0,
            truncated=not ended,
            finish_reason="stop" if ended else "length",
        )

    def diagnose(self) -> Diagnosis:
        """Report the model's size, device and context."""
        tensors = [*self._model.parameters(), *self._model.buffers()]
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        count = self._model.num_parameters()  # numel() would count two packed 4-bit weights as one
        device = self._model.device.type
        line = f"{count / 1e6:,.1f} million parameters, {size / 2**20:,.0f} MB on {device}"
        return Diagnosis(True, (f"{line}, context of {self.context:,} tokens",))


def load_chat_model(source: str) -> tuple[Any, Any]:
    """Return the tokenizer and the model from a folder, or by a name in the hub, on the fastest device.

    Raises UsageError if the extra is not installed, or if the model cannot be used; the message says why.
    """
    try:
        import torch
        import transformers
    except ImportError:
        raise UsageError(f"local:{source} needs PyTorch and transformers: pip install 'policygen[local]'") from None
    folder = _folder_of(source)
    adapter = _read_json(folder / _ADAPTER) if (folder / _ADAPTER).exists() else None
    base = folder if adapter is None else _base_of(folder, adapter)
    _check_files(base, "*.safetensors")
    if adapter is not None:
        _check_files(folder, "adapter_model.safetensors")
        if adapter.get("peft_type") != "LORA":
            raise UsageError(f"{folder} is an adapter of type {adapter.get('peft_type')!r}; only LoRA is supported")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        place = folder if (folder / "tokenizer_config.json").exists() else base
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True, trust_remote_code=False)
        model = _load(base)
        if adapter is not None:
            import peft

            config = peft.LoraConfig(**{name: adapter[name] for name in _LORA if adapter.get(name) is not None})
            model = peft.PeftModel.from_pretrained(model, folder, config=config, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError) as error:
        raise UsageError(f"{source} cannot be loaded as a chat model: {_first_line(error)}") from None
    if not tokenizer.chat_template:
        raise UsageError(f"{source} has no chat template: use a model that was tuned to answer instructions")
    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    return tokenizer, model.to(device)


def _load(base: Path) -> Any:
    from transformers import AutoModelForCausalLM

    safely = {"dtype": "auto", "local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    # State the attention implementation, because a model's configuration may name compiled code to download.
    try:
        return AutoModelForCausalLM.from_pretrained(base, attn_implementation="sdpa", **safely)
    except ValueError:  # this architecture has no sdpa implementation
        return AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager", **safely)


def _folder_of(source: str) -> Path:
    """Return the folder of a model: `source` itself, or the copy in the hub's cache, downloaded if necessary."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(source, allow_patterns=list(_FILES)))
    except Exception as error:  # the hub's client raises errors of many kinds
        raise UsageError(
            f"{shown(source)} is not a folder, and not available from the Hugging Face hub: {_first_line(error)}"
        ) from None


def _base_of(folder: Path, adapter: dict[str, Any]) -> Path:
    base = adapter.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UsageError(f"{folder / _ADAPTER} names no base model (base_model_name_or_path)")
    try:
        return _folder_of(base)
    except UsageError as error:
        raise UsageError(f"the base model of {folder} is missing: {error}") from None


def _check_files(folder: Path, weights: str) -> None:
    """Raise UsageError for a folder without safetensors, or with files that ask to run code."""
    if not any(folder.glob(weights)):
        pickled = next((one.name for kind in ("*.bin", "*.pt", "*.pth") for one in folder.glob(kind)), None)
        why = f"{pickled} runs code when loaded, so save it as safetensors" if pickled else "there is no model"
        raise UsageError(f"{folder} holds no {weights}: {why}")
    for name in ("config.json", "tokenizer_config.json"):
        if (folder / name).exists() and "auto_map" in _read_json(folder / name):
            raise UsageError(f"{folder / name} asks to run code of the model's author (auto_map), which is refused")


def _read_json(path: Path) -> dict[str, Any]:
    value = read(path, json_of, named=UsageError)
    if not isinstance(value, dict):
        raise UsageError(f"{path} is not a JSON object")
    return value


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return shown(lines[0][:300] if lines else type(error).__name__)
