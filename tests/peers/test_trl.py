"""`capgrade.reward.RewardFunction` as a reward function of trl's trainers."""

import pickle
from pathlib import Path

import pytest
from datasets import Dataset

from capgrade import CiderReward, Frequencies
from capgrade.reward import RewardFunction
from capgrade.schemas.errors import InputError
from tests.conftest import WORDS, random_sets

SETS = random_sets(60, seed=5, least=5, most=5)


def test_grpo_trains_two_steps_on_cider(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    words = Tokenizer(
        WordLevel({word: k for k, word in enumerate(["<pad>", "<end>", *WORDS])}, unk_token="<pad>")
    )
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>"
    )
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), pad_token_id=0, eos_token_id=1, **sizes)
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    dataset = Dataset.from_dict({"prompt": ["a man"] * len(SETS), "references": SETS})
    arguments = GRPOConfig(
        str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=12,
        use_cpu=True,
        bf16=False,
        report_to="none",
        logging_steps=1,
        save_strategy="no",
        learning_rate=0.01,
    )
    reward = RewardFunction(CiderReward(Frequencies.of(dataset["references"])))
    trainer = GRPOTrainer(
        model,
        reward_funcs=reward,
        args=arguments,
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()
    means = [
        row["rewards/cider/mean"]
        for row in trainer.state.log_history
        if "rewards/cider/mean" in row
    ]
    assert len(means) == 2 and min(means) > 0
    assert any(not value.equal(before[name]) for name, value in trainer.model.state_dict().items())


def test_a_reward_is_that_of_the_caption_alone() -> None:
    frequencies = Frequencies.of(SETS)
    reward = RewardFunction(CiderReward(frequencies))
    completions, references = [own[0] for own in SETS[::-1]], SETS[:20] + SETS[:20] + SETS[20:40]
    # two completions of one image after each other, one of most others
    references[3] = references[2]
    alone = [
        CiderReward(frequencies)([[c]], [r])[0, 0]
        for c, r in zip(completions, references, strict=True)
    ]
    assert reward(
        completions=completions, references=references, prompts=completions
    ) == pytest.approx(alone)
    messages = [[{"role": "assistant", "content": text}] for text in completions]
    parts = [
        [{"role": "assistant", "content": [{"type": "text", "text": text}]}] for text in completions
    ]
    again = pickle.loads(pickle.dumps(reward))
    assert (
        again(messages, references) == again(parts, references) == reward(completions, references)
    )
    with pytest.raises(InputError, match=r"completions\[1\]: neither a text nor messages"):
        reward(["a dog", 3], references[:2])
    with pytest.raises(InputError, match="no candidates"):
        reward([], [])
