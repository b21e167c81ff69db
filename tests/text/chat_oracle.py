"""Chat templates: the texts that jinja2 makes of them with the settings of transformers.

Templates in the forms of published families, written for this test, and random ones. Run by `./run test --full`, which installs transformers;
without it the test is reported as not run."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

NOW = 1_700_000_000  # of strftime_now
CHATML = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
LLAMA_2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must take turns: user, assistant, user ...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
LLAMA_3 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system's message comes first, if there is one. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("No user message to put the tools in!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("Roles must take turns") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Ids of tool calls have nine characters!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only these roles") }}
    {%- endif %}
{%- endfor %}
"""
QWEN_2_5 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\nSignatures are within <tools></tools> XML tags:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN_3 = """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
QWEN_CODER = """{% macro render_extra_keys(json_dict, handled_keys) %}
    {%- if json_dict is mapping %}
        {%- for json_key in json_dict if json_key not in handled_keys %}
            {%- if json_dict[json_key] is mapping or (json_dict[json_key] is sequence and json_dict[json_key] is not string) %}
                {{- '\\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | tojson | safe) ~ '</' ~ json_key ~ '>' }}
            {%- else %}
                {{-'\\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | string) ~ '</' ~ json_key ~ '>' }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{% endmacro %}
{%- for tool in tools or [] %}
    {%- if tool.function is defined %}
        {%- set tool = tool.function %}
    {%- endif %}
    {{- "\\n<function>\\n<name>" ~ tool.name ~ "</name>" }}
    {%- if tool.description is defined %}
        {{- '\\n<description>' ~ (tool.description | trim) ~ '</description>' }}
    {%- endif %}
    {%- if tool.parameters is defined and tool.parameters is mapping and tool.parameters.properties is defined and tool.parameters.properties is mapping %}
        {%- for param_name, param_fields in tool.parameters.properties|items %}
            {{- '\\n<parameter>' ~ param_name ~ (param_fields.type | string) }}
            {%- set handled_keys = ['name', 'type', 'description'] %}
            {{- render_extra_keys(param_fields, handled_keys) }}
        {%- endfor %}
    {%- endif %}
    {{- render_extra_keys(tool, ['type', 'name', 'description', 'parameters']) }}
{%- endfor %}
{%- for message in messages if message.role != 'system' %}
    {{- loop.index ~ '/' ~ loop.length ~ message.content | default('-') }}
    {%- for call in message.tool_calls | default([]) %}
        {%- for name, value in (call.function.arguments | items) %}
            {%- set value = value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string %}
            {{- '<parameter=' + name + '>\\n' }}
            {{- value }}
        {%- endfor %}
    {%- endfor %}
{%- endfor %}
"""
GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}"""
GEMMA_3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""
SMOLLM = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful assistant<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
SMOLLM_3 = """{#- defaults #}
{%- if enable_thinking is not defined -%}
{%- set enable_thinking = true -%}
{%- endif -%}
{%- set reasoning_mode = "/think" if enable_thinking else "/no_think" -%}
{%- set custom = messages[0].content.replace("/no_think", "").replace("/think", "").rstrip() if messages[0].role == "system" else "" -%}
{{- "<|im_start|>system\\n" -}}
## Metadata

Today Date: {{ strftime_now("%d %B %Y") }}
Reasoning Mode: {{ reasoning_mode }}

{% if custom -%}
    {{- custom + "\\n\\n" -}}
{% endif -%}
{{- "<|im_end|>\\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>user\\n" + content + "<|im_end|>\\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- if reasoning_mode == "/think" -%}
            {{ "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
        {%- else -%}
            {{ "<|im_start|>assistant\\n" + "<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
        {%- endif -%}
        {% endgeneration %}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\\n" }}
{%- endif -%}
"""
FAMILIES = dict(chatml=CHATML, llama_2=LLAMA_2, llama_3=LLAMA_3, mistral=MISTRAL, qwen_2_5=QWEN_2_5, qwen_3=QWEN_3, qwen_coder=QWEN_CODER,
                gemma=GEMMA, gemma_3=GEMMA_3, smollm=SMOLLM, smollm_3=SMOLLM_3)
USER, SYSTEM = {"role": "user", "content": "  What does ‘naïve’ mean?\n"}, {"role": "system", "content": "Be brief. /no_think "}
CALL = {"role": "assistant", "tool_calls": [{"id": "abcdefgh1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich <&>", "days": 3, "deep": {"a": [1, None, True]}}}}]}
RESULT = {"role": "tool", "name": "weather", "content": "{\"t\": 21.5}", "tool_call_id": "abcdefgh1"}
CHATS = [[USER], [SYSTEM, USER], [USER, {"role": "assistant", "content": "\n\nA word."}, {"role": "user", "content": "Thanks\"'\\"}],
         [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes", "reasoning_content": None}, USER],
         [USER, CALL, RESULT], [SYSTEM, USER, CALL, RESULT, RESULT, {"role": "assistant", "content": "21.5", "reasoning_content": "simple"}],
         [{"role": "user", "content": [{"type": "text", "text": "look "}, {"type": "image"}]}], [USER, USER], [CALL]]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": " The weather <of> a city é", "return": {"type": "number"}, "strict": True,
                                           "parameters": {"type": "object", "required": ["city"], "properties": {
                                               "city": {"type": "string", "description": "where"}, "days": {"type": ["integer", "null"], "enum": [1, 2.5, 1e100], "items": {"x": []}}}}}}]


class Compiled:
    """jinja2 as transformers sets it up."""

    def __init__(self):
        import datetime

        from transformers.utils import chat_template_utils

        class Clock(datetime.datetime):
            @classmethod
            def now(cls, tz=None):
                return cls.fromtimestamp(NOW)

        self.module = chat_template_utils
        self.module.datetime = Clock

    def render(self, template, variables):
        try:
            return {"text": self.module._compile_jinja_template.__wrapped__(template).render(**variables)}
        except Exception as error:  # whatever a template does
            return {"error": f"{type(error).__name__}: {error}"}


class Random:
    """Templates that compute with a few variables; about half of their expressions fail in neither."""

    NAMES = ["messages", "tools", "text", "number", "real", "items", "table", "missing", "flag", "none_value"]

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.macros = 0

    def variables(self):
        words = ["a", "Ab c", "", "x,y,,z", "ÄÖ ß-straße", "漢字 é", "  pad\t", "12", "-3.5", "line\nline2\r\nl3", "it's \"q\"", "\u00a0nb\u2028"]
        r = self.random
        return {"messages": [{"role": r.choice(["user", "assistant", "system"]), "content": r.choice(words), "n": r.randint(-3, 9)} for _ in range(r.randint(1, 4))],
                "tools": r.choice([None, [], [{"name": "f", "items": 3}]]), "text": r.choice(words), "number": r.randint(-20, 20), "real": r.choice([0.5, -1.25, 1e16, 1e-7, 3.0]),
                "items": [r.choice([1, 2, 0, -5]) for _ in range(r.randint(0, 5))], "table": {r.choice("kabcd"): r.choice([1, "v", None, [1], {"q": 0}]) for _ in range(r.randint(0, 3))},
                "flag": r.random() < 0.5, "none_value": None}

    def string(self):
        return self.random.choice(["'a'", '"b c"', "'\\n'", "''", "'é'", "'x' 'y'", "','", "'role'", "'k'", "'\\t \\\\ \\x41'", "' '"])

    def expression(self, depth=3):
        r, e = self.random, lambda: self.expression(depth - 1)
        if depth == 0 or r.random() < 0.15:
            return r.choice([self.string(), str(r.randint(0, 12)), "1.5", "true", "None", *self.NAMES, "text", "items", "messages[0]", "messages[0].content", "messages[-1]['role']", "table.k", "loop.index"])
        kind = r.randint(0, 15)
        if kind == 0:
            return f"({e()} {r.choice(['+', '-', '*', '/', '//', '%', '~', '~', '+'])} {e()})"
        if kind == 1:
            return f"({e()} {r.choice(['==', '!=', '<', '>=', 'in', 'not in'])} {e()})"
        if kind == 2:
            return f"({e()} {r.choice(['and', 'or'])} {e()})"
        if kind == 3:
            return f"(not {e()})"
        if kind == 4:
            return f"({e()} if {e()} else {e()})"
        if kind == 5:
            bound = lambda: r.choice(["", str(r.randint(-4, 4))])
            return f"{r.choice(['text', 'items', 'messages', self.string()])}[{bound()}:{bound()}{r.choice(['', ':', ':-1', ':2'])}]"
        if kind == 6:
            return f"[{', '.join(e() for _ in range(r.randint(0, 3)))}]"
        if kind == 7:
            return "{" + ", ".join(f"{r.choice([self.string(), '1', 'true'])}: {e()}" for _ in range(r.randint(0, 3))) + "}"
        if kind == 8:
            method = r.choice(["strip()", "upper()", "lower()", "title()", "capitalize()", "split()", "split(',')", "split(' ', 1)", "rsplit(None, 1)", "splitlines()",
                               "startswith('a')", "endswith(('c', 'e'))", "replace('a', 'bb')", "find('a')", "rfind('')", "count('l')", "lstrip('a ')", "rstrip()",
                               "partition(',')", "rpartition(' ')", "isdigit()", "isalpha()", "isspace()", "isupper()", "removeprefix('a')", "join(['p', 'q'])",
                               "zfill(5)", "ljust(6, '.')", "format(1, a=2)", "index('a')", "splitlines(true)"])
            return f"{r.choice(['text', self.string(), 'messages[0].content'])}.{method}"
        if kind == 9:
            return f"{r.choice(['table', 'messages[0]'])}.{r.choice(['items()', 'keys()', 'values()', 'get(' + repr(r.choice('kab')) + ')', 'get(' + e() + ', 2)', 'pop', 'k', 'copy()', 'content'])}"
        if kind in (10, 11, 12):
            name = r.choice(["trim", "upper", "lower", "title", "capitalize", "length", "list", "first", "last", "join(',')", "join", "default('d')", "default('d', true)", "tojson", "tojson(indent=2)",
                             "int", "float", "string", "reverse", "sort", "sort(reverse=true)", "unique", "sum", "min", "max", "round", "round(1)", "abs", "map('upper')", "map(attribute='role')",
                             "select", "reject('none')", "select('odd')", "selectattr('role', 'equalto', 'user')", "rejectattr('n')", "dictsort", "items", "replace('a', 'b')", "replace('', '-', 2)",
                             "indent(2)", "indent(width=1, first=true)", "batch(2)", "e", "safe", "count", "tojson(separators=(',', ':'), ensure_ascii=true)", "list | length", "list | tojson", "list | join('/')",
                             "sort(attribute='n')", "map('int') | list", "dictsort(by='value')", "tojson(sort_keys=true)", "map(attribute='content', default='-') | list", "trim('a ')"])
            return f"({e()} | {name})"
        if kind == 13:
            test = r.choice(["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true", "odd", "even", "divisibleby 3",
                             "eq 1", "in [1, 'a']", "not string", "sameas none", "lower", "callable", "gt 0"])
            return f"({e()} is {test})"
        if kind == 14:
            return f"{r.choice(['range(3)', 'range(1, 9, 3)', 'range(4, 0, -1)', 'dict(a=1)', 'dict(table, z=2)'])} | {r.choice(['list', 'length', 'tojson', 'last', 'first'])}"
        return f"-{e()}"

    def blank(self):
        return self.random.choice(["", "", " ", "\n", "\n  ", "text ", "\t", " \n\n "])

    def tag(self, content):
        r = self.random
        return f"{{%{r.choice(['', '', '-', '+'])} {content} {r.choice(['', '', '-', '+'])}%}}"

    def statement(self, depth):
        r = self.random
        kind = r.randint(0, 11) if depth > 0 else r.randint(0, 3)
        if kind <= 2:
            return f"{{{{{r.choice(['', '-'])} {self.expression()} {r.choice(['', '-'])}}}}}"
        if kind == 3:
            return r.choice([f"{{#{r.choice(['', '-'])} note {r.choice(['', '-'])}#}}", self.tag(f"set {r.choice(['x', 'text', 'y'])} = {self.expression()}"), "{{ x }}", "{% raw %} {{ x }} {% endraw %}\n"])
        body = lambda: self.body(depth - 1)
        if kind in (4, 5):
            other = self.tag("elif " + self.expression()) + body() if r.random() < 0.3 else ""
            other += self.tag("else") + body() if r.random() < 0.5 else ""
            return self.tag("if " + self.expression()) + body() + other + self.tag("endif")
        if kind in (6, 7, 8):
            head = r.choice([f"for x in {self.expression()}", "for m in messages", "for k, v in table.items()", "for i in items if i > 0", "for c in text", "for m in messages | reverse", "for x, y in [(1, 2), (3, 4)]"])
            jump = self.tag("if loop.index " + r.choice(["== 2", "> 1"])) + self.tag(r.choice(["break", "continue"])) + self.tag("endif") if r.random() < 0.3 else ""
            other = self.tag("else") + body() if r.random() < 0.3 else ""
            return self.tag(head) + jump + f"{{{{ loop.{r.choice(['index', 'first', 'last', 'revindex', 'length', 'previtem', 'nextitem', 'cycle(1, 2)', 'changed(x)', 'depth'])} }}}}" + body() + other + self.tag("endfor")
        if kind == 9:
            return self.tag("set x" + r.choice(["", " | upper", " | trim | length"])) + body() + self.tag("endset") + "{{ x }}"
        if kind == 10:
            self.macros += 1
            name = f"m{self.macros}"
            caller = r.random() < 0.3
            made = self.tag(f"macro {name}(a, b={self.expression(1)})") + body() + "{{ a }}{{ b }}" + ("{{ caller() }}" if caller else "") + self.tag("endmacro")
            call = f"{name}({self.expression(1)}{r.choice(['', ', b=1', ', ' + self.string()])})"
            return made + (self.tag("call " + call) + body() + self.tag("endcall") if caller else f"{{{{ {call} }}}}")
        return r.choice([self.tag("set ns = namespace(n=0, t=text)") + self.tag("for i in items") + self.tag("set ns.n = ns.n + i") + self.tag("endfor") + "{{ ns.n }}{{ ns.t }}",
                         self.tag(f"with x = {self.expression()}") + body() + self.tag("endwith"), self.tag("filter upper") + body() + self.tag("endfilter"), "{{ raise_exception('no') }}"])

    def body(self, depth):
        return "".join(self.blank() + self.statement(depth) for _ in range(self.random.randint(1, 3))) + self.blank()


def answers_of(program, requests):
    lines = "".join(json.dumps({**request, "now": NOW}, ensure_ascii=False) + "\n" for request in requests)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True, encoding="utf-8")
    return [json.loads(line) for line in done.stdout.split("\n") if line]  # not splitlines: U+2028 is no end


def compare(program, theirs, requests):
    """How many texts were equal, failed in both, and are not done here."""
    equal = failed = absent = 0
    for request, ours in zip(requests, answers_of(program, requests), strict=True):
        there = theirs.render(request["template"], json.loads(json.dumps(request["variables"])))
        if "error" in ours and any(words in ours["error"] for words in (" done here", " read here", "known here", "printed here", "beyond 64 bits", "nests deeper")):
            absent += 1
        elif ("error" in ours) != ("error" in there) or ("text" in ours and ours["text"] != there["text"]):
            raise AssertionError(f"template {request['template']!r}\nof {request['variables']!r}\nours:   {ours!r}\ntheirs: {there!r}")
        elif "error" in ours:
            failed += 1
        else:
            equal += 1
    return equal, failed, absent


def family_requests():
    for template in FAMILIES.values():
        for chat in CHATS:
            messages = [{key: value for key, value in message.items() if value is not None} for message in chat]
            for tools in (None, TOOLS):
                for more in ({}, {"enable_thinking": False}, {"date_string": "1 Jan", "tools_in_user_message": False}):
                    yield {"template": template, "variables": {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": bool(more) or tools is None,
                                                               "bos_token": "<s>", "eos_token": "</s>", **more}}


def unicode_requests():
    """Every character that Python 3.11 knows, through the methods that look at characters."""
    import unicodedata

    points = [chr(point) for point in range(1, 0x110000) if not 0xD800 <= point < 0xE000 and unicodedata.category(chr(point)) not in ("Cn", "Co")]
    template = "{% for c in chars %}{{ c.upper() }}|{{ c.lower() }}|{{ c.title() }}|{{ c.strip() == '' }}|{{ c.isalpha() }}|{{ [c] }}|{{ c | tojson(ensure_ascii=true) }}{% endfor %}"
    # Characters of which something is not done here would hide their neighbours.
    for begin in range(0, len(points), 50):
        yield {"template": template, "variables": {"chars": "".join(points[begin:begin + 50])}}


def check_command(fovea):
    """A folder: the prompt's text and ids, and what is said to it."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<think>"]
    tokenizer.train_from_iterator([str(FAMILIES)], trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")

    def run(*arguments, stdin=None, fails=False):
        done = subprocess.run([fovea, "generate", *map(str, arguments)], input=stdin, capture_output=True, text=True, check=False, encoding="utf-8")
        assert (done.returncode != 0) == fails, f"{arguments}: {done.stderr}"
        return done.stderr if fails else done.stdout

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = transformers.LlamaConfig(vocab_size=len(fast) + 3, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, initializer_range=0.2,
                                            bos_token_id=0, eos_token_id=1)
        model = transformers.LlamaForCausalLM(settings).eval()
        model.save_pretrained(folder)
        fast.chat_template = {"default": QWEN_3, "tool_use": QWEN_2_5, "extra": CHATML}
        fast.save_pretrained(folder)
        (folder / "tools.json").write_text(json.dumps(TOOLS), encoding="utf-8")
        shown = ("--model", folder, "--show-prompt", "--json")
        for number, chat in enumerate(CHATS[:6]):
            for tools in (None, TOOLS):
                for template in (None, "extra"):
                    options = ([] if tools is None else ["--tools", folder / "tools.json"]) + ([] if template is None else ["--template", template])
                    try:
                        text = fast.apply_chat_template(chat, tools=tools, chat_template=template, tokenize=False, add_generation_prompt=True, enable_thinking=False)
                    except Exception:
                        run(*shown, "--messages", "-", *options, stdin=json.dumps(chat), fails=True)
                        continue
                    ids = fast.apply_chat_template(chat, tools=tools, chat_template=template, add_generation_prompt=True, enable_thinking=False, return_dict=False)
                    spellings = [json.dumps(chat), json.dumps({"messages": chat}), "".join(json.dumps(message) + "\n" for message in chat)]
                    ours = json.loads(run(*shown, "--messages", "-", *options, "--template-variables", '{"enable_thinking": false}', stdin=spellings[number % 3]))
                    assert ours == {"prompt": text, "ids": list(ids)}, f"{ours}\n{text!r}\n{ids}"
        chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "[one]"}]
        encoded = fast.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=False)
        written = model.generate(encoded, do_sample=False, max_new_tokens=20, pad_token_id=1)[0, encoded.shape[1]:]
        theirs = fast.decode(written, skip_special_tokens=True)
        ours = run("--model", folder, "--chat", "--system", "Be brief.", "--greedy", "--length", 20, "--prompt=[one]")
        assert ours == theirs + "\n", f"{ours!r}, there {theirs!r}"
        line = json.dumps({"messages": chat, "length": 20}) + "\n"
        many = json.loads(run("--model", folder, "--input", "-", "--greedy", stdin=line))
        assert many["text"] == theirs, many
        refused = run("--model", folder, "--chat", "--template", "none", "a", fails=True)
        assert "default, extra, tool_use" in refused, refused


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fovea", required=True)
    parser.add_argument("--random", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if os.environ.get("FOVEA_CASES") != "full":
        print("not run: ./run test --full compares with transformers")
        return 77
    try:
        import jinja2  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        print(f"not run: {error}")
        return 77
    theirs, program = Compiled(), Path(options.fovea).parent / "tests" / "render_template"
    for name, requests in (("families", list(family_requests())), ("characters", list(unicode_requests()))):
        equal, failed, absent = compare(program, theirs, requests)
        print(f"{name}: {equal} equal, {failed} failed in both, {absent} not done here")
        assert name != "families" or absent == 0, "a family's template needs what is not done here"
    requests = []
    for number in range(options.random):
        made = Random(options.seed * 1_000_000 + number)
        requests.append({"template": made.body(number % 3), "variables": made.variables()})
    equal, failed, absent = compare(program, theirs, requests)
    print(f"random: {equal} equal, {failed} failed in both, {absent} not done here")
    assert equal > options.random / 5 and absent < options.random / 10, "too few random templates say something"
    check_command(options.fovea)
    print("the command: equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
