#!/usr/bin/env bash
# folders.sh FOVEA: tests what commands say of a folder: unknown families, rules of generation_config.json that leave no id, and
# conversations from pipes.
. "$(dirname "$0")/script.bash"
mkdir gpt2
cat >gpt2/config.json <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 8, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 60,
 "eos_token_id": null}
END
"$(dirname "$fovea")/tests/family_model" gpt2

# The families are listed on request alone: an error gives the reason.
"$fovea" show --families >families
grep -qE '^llama +LlamaForCausalLM, LlamaModel' families || fail "$(cat families)"
"$fovea" show --families --json | python3 -c 'import json, sys; assert "BertModel" in json.load(sys.stdin)["bert"]' || fail "show --families --json"
cp -r gpt2 odd
sed -i 's/"gpt2"/"odd_bert", "alibi": true/' odd/config.json
refused "model_type: expected one of the $(wc -l <families) families that \`fovea show --families\` lists, got \"odd_bert\", which needs positions by ALiBi" \
  "$fovea" generate --model odd --prompt-ids 1
! grep -q mistral errors || fail "the error lists all families: $(cat errors)"
refused "argument 'folder': expected a folder, or --families, got none" "$fovea" show
refused "argument 'folder': expected none beside --families, got gpt2" "$fovea" show gpt2 --families

# What is no model's folder.
refused 'fovea: nowhere: there is no such folder' "$fovea" show nowhere
refused 'fovea: nowhere: there is no such folder' "$fovea" summarize --model nowhere text
refused "fovea: '': there is no such folder" "$fovea" generate --model '' --prompt a
mkdir bare
refused "fovea: bare: expected a model's folder with config.json, which is missing" "$fovea" show bare
(cd bare && refused "fovea: .: expected a model's folder with config.json, which is missing" "$fovea" show .)
touch x.gguf x.bin
refused 'fovea: x.gguf: GGUF is not read; expected a folder with config.json and model.safetensors' "$fovea" generate --model x.gguf --prompt a
refused 'fovea: x.bin: is a file; expected a folder with config.json and model.safetensors' "$fovea" show x.bin

# Weights that are missing, or PyTorch's alone. Whether a config is refused is said without them.
cp -r gpt2 light
rm light/model.safetensors
none='holds no weights: neither model.safetensors nor model.safetensors.index.json'
refused "fovea: light: $none" "$fovea" show light
for file in pytorch_model.bin.index.json pytorch_model.bin; do
  touch "light/$file"
  for command in 'show light' 'generate --model light --prompt-ids 1' 'convert --model light --output new'; do
    refused "fovea: light: $none. $file is not read; save_pretrained of transformers writes model.safetensors" "$fovea" $command
  done
done
sed -i 's/"gpt2"/"odd_bert", "alibi": true/' light/config.json
"$fovea" show light >shown || fail "show of a config that is refused, without weights"
grep -qE '^weights +none$' shown || fail "$(cat shown)"
grep -qE '^runs +no: model_type: expected one of .*, which needs positions by ALiBi' shown || fail "$(cat shown)"
"$fovea" show light --json | python3 -c 'import json, sys; r = json.load(sys.stdin); assert not r["runs"] and r["tensors"] == 0, r' || fail "show --json without weights"
refused 'light/config.json: model_type: expected one of' "$fovea" convert --model light --output new

# Rules that leave no id are named.
for rule in '"suppress_tokens": [0, 1, 2, 3, 4, 5, 6, 7]' '"begin_suppress_tokens": [0, 1, 2, 3, 4, 5, 6, 7]' \
  '"bad_words_ids": [[0], [1], [2], [3], [4], [5], [6], [7]]' '"forced_bos_token_id": 3, "suppress_tokens": [3]'; do
  echo "{\"max_new_tokens\": 2, $rule}" >gpt2/generation_config.json
  name=$(sed 's/.*"\([a-z_]*\)": [^"]*$/\1/' <<<"$rule")
  refused "generate: argument 'rules': expected at least one id that may be written, got none behind $name" "$fovea" generate --model gpt2 --prompt-ids 1
  refused "argument 'rules': expected at least one id that may be written, got none behind $name" "$fovea" generate --model gpt2 --prompt-ids 1 --beam-size 2
done
# A file that cannot be read is told by show, whose report and status stand.
echo '{"do_sample": 1}' >gpt2/generation_config.json
"$fovea" show gpt2 >shown || fail "show beside a wrong generation_config.json"
grep -q '^runs  *writes no texts: .*do_sample: expected true or false, got 1' shown || fail "$(cat shown)"
rm gpt2/generation_config.json
cp -r gpt2 cut
echo '{' >cut/tokenizer.json
"$fovea" show cut >shown || fail "show beside a wrong tokenizer.json"
grep -q '^runs  *with ids alone' shown || fail "$(cat shown)"

# A conversation may come from a pipe, which is read once. A directory is refused.
"$(dirname "$fovea")/tests/language_model" chat
echo "{%- for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}" >chat/chat_template.jinja
said='[{"role": "user", "content": "the cat"}]'
chat() { "$fovea" generate --model chat --show-prompt "$@"; }
[[ $(chat --messages <(echo "$said")) == "$(chat --messages - <<<"$said")" ]] || fail "messages of a pipe"
echo '[]' >tools
chat --messages <(echo "$said") --tools <(cat tools) >out || fail "tools of a pipe"
refused 'chat: cannot be read' chat --messages chat
refused 'nowhere: does not exist' chat --messages nowhere
[[ $("$fovea" score text --model chat --window 4 --input <(echo 'the cat sat on a mat')) == *'bits a character' ]] || fail "a text of a pipe"
