#!/usr/bin/env python3
"""Writes chat_shapes.json: 26 small changes that a fine-tune may make to a published chat template, and what jinja2 (3.1) makes
of each, with and without a system prompt:

    python3 make_chat_shapes.py > chat_shapes.json
"""

import datetime
import json

from make_chat_cases import LLAMA3, chat_ml, deepseek, mistral, with_thoughts, with_tools
from jinja2.sandbox import ImmutableSandboxedEnvironment

ML = chat_ml("")
DEFAULT = "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n' + d + '<|im_end|>\n' }}{% endif %}"
SHAPES = {
    "llama-3": LLAMA3,
    "llama-3 without bos": LLAMA3.replace("bos_token + text if loop.first else text", "text"),
    "llama-3 without trim": LLAMA3.replace(" | trim", ""),
    "llama-3 with dates": "{{ bos_token }}{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: {{ date_string }}\n\n"
    "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% set messages = messages[1:] %}{% endif %}<|eot_id|>"
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}",
    "llama-3 with a default system prompt": LLAMA3.replace("{% for", "{% if messages[0].role != 'system' %}{{ bos_token }}"
    "{{ '<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>' }}{% endif %}{% for", 1),
    "chatml": ML,
    "chatml with a default system prompt": chat_ml("Be brief."),
    "chatml with its default in a variable": "{% set d = 'Answer in one word.' %}" + DEFAULT + ML,
    "chatml with its default in a block": "{% set d %}\n  Answer {{ 'in' ~ ' ' ~ 'one' }} word.\n{% endset %}" + DEFAULT + ML,
    "chatml with a date": "{% set d = 'Today is ' ~ strftime_now('%Y-%m-%d') %}" + DEFAULT + ML,
    "chatml with text that it makes": "{% set d = ['a', 'b'] | join(' and ') | upper %}" + DEFAULT + ML,
    "chatml without a line end behind a turn": ML.replace("<|im_end|>\n", "<|im_end|>"),
    "chatml without a line end behind assistant": ML.replace("assistant\n", "assistant"),
    "chatml with text behind assistant": ML.replace("assistant\n", "assistant\nAnswer: "),
    "chatml with a thought": ML.replace("assistant\n", "assistant\n<think>\n"),
    "chatml with trimmed content": ML.replace("m['content']", "(m['content'] | trim)"),
    "chatml with upper roles": ML.replace("m['role']", "m['role'].upper()"),
    "chatml with a macro": "{% macro turn(role, text='') %}<|im_start|>{{ role }}\n{{ text }}<|im_end|>\n{% endmacro %}"
    "{% for m in messages %}{{ turn(m.role, text=m.content) }}{% endfor %}<|im_start|>assistant\n",
    "chatml with a namespace": "{% set ns = namespace(system='none') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.system = m.content %}{% endif %}{% endfor %}[{{ ns.system }}]" + ML,
    "qwen2.5": with_tools("You are Qwen."),
    "qwen3": with_thoughts(),
    "deepseek with a closed thought": deepseek("<｜Assistant｜></think>"),
    "deepseek with a line end behind the system prompt": deepseek("<｜Assistant｜>").replace("{{ m['content'] }}", "{{ m['content'] + '\\n' }}"),
    "deepseek with <think>": deepseek("<｜Assistant｜><think>\\n"),
    "mistral": mistral("[INST] ", " [/INST]"),
    "gemma": "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '<start_of_turn>' + m.role + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
}


def render(template, system):
    def raise_exception(message):
        raise ValueError(message)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime(2024, 7, 26).strftime(form)
    messages = ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": " Where is it?\n"}]
    try:
        return made.from_string(template).render(messages=messages, tools=None, documents=None, add_generation_prompt=True, bos_token="<s>")
    except ValueError as error:
        return {"raises": str(error)}


def main():
    assert len(SHAPES) == 26
    out = [{"name": name, "template": template, "plain": render(template, ""), "system": render(template, " Be kind. ")}
           for name, template in SHAPES.items()]
    print(json.dumps(out, ensure_ascii=False, indent=0))


if __name__ == "__main__":
    main()
