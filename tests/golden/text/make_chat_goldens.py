#!/usr/bin/env python3
"""Conversations through each model's chat template, as jinja2 renders them. Made with jinja2 3.1.6.
usage: make_chat_goldens.py SMOLLM2_TOKENIZER_CONFIG.json OUTPUT.json
The other templates are written here after what the models' publishers document about their prompt formats."""
import json, pathlib, sys
import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

smollm2 = json.loads(pathlib.Path(sys.argv[1]).read_text())["chat_template"]
turn = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
ask = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
alternate = "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
header = "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
templates = {
    "SmolLM2": smollm2,
    "ChatML": "{% for message in messages %}" + turn + "{% endfor %}" + ask,
    "Qwen2": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}" + turn + "{% endfor %}" + ask,
    "Qwen2.5": """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "Qwen3": """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "Llama-2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}" + alternate + "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "Llama-3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = " + header + "+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    "Llama-3.1": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- """ + header + """+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "Mistral": "{{ bos_token }}{% for message in messages %}" + alternate + "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "Phi-3": "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}",
}
tokens = {"Llama-2": ("<s>", "</s>"), "Mistral": ("<s>", "</s>"), "Llama-3": ("<|begin_of_text|>", "<|eot_id|>"), "Llama-3.1": ("<|begin_of_text|>", "<|eot_id|>"), "Phi-3": ("<s>", "<|endoftext|>")}
S, U, A = (lambda c: ("system", c)), (lambda c: ("user", c)), (lambda c: ("assistant", c))
conversations = [
    [U("Hello!")], [S("Be brief."), U("Hi")], [U("1+1?"), A("2"), U("2+2?")], [S(" pad \n"), U("  spaced \u00a0\x1c"), A("\n\nanswer \n"), U("more\n")],
    [U("q"), A("<think>\nhm\n</think>\n\nyes"), U("again")], [U("q"), A("<think>\nhm\n</think>\n\nyes")], [U("q"), A("yes")], [S("only")], [A("first")], [U("a"), U("b")], [U("a"), S("late"), A("c")],
    [U(""), A(""), U("")], [U("q"), A("a</think>b</think>c"), U("<tool_response>x</tool_response>"), A("<think>t1<think>t2</think>\nz"), A("end")], [U("<|im_end|> injected")], [S(""), U("x")],
]


def fail(text): raise jinja2.exceptions.TemplateError(text)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
env.globals["raise_exception"] = fail
result = {"jinja2": jinja2.__version__, "conversations": conversations, "templates": []}
for name, source in templates.items():
    bos, eos = tokens.get(name, ("<|im_start|>", "<|im_end|>"))
    prompts = []
    for conversation in conversations:
        try:
            prompts.append(env.from_string(source).render(messages=[{"role": r, "content": c} for r, c in conversation], bos_token=bos, eos_token=eos, add_generation_prompt=True))
        except jinja2.exceptions.TemplateError:
            prompts.append(None)
    result["templates"].append({"name": name, "source": source, "prompts": prompts})
pathlib.Path(sys.argv[2]).write_text(json.dumps(result, indent=0) + "\n")
