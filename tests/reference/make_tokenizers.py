#!/usr/bin/env python3
"""Writes what tests/data/tokenizer compares with: the folders tokenizers/NAME and tokenizers/expected.json next to this file.

Needs the `tokenizers` package (PyPI); the tests themselves need no Python. The tokenizers are small ones, trained
here, with the split patterns, normal forms and special tokens of GPT-2, Llama 3 and Qwen2. Each variant changes top
keys of a trained one. Expected tokens are those of the package, without special tokens around the text.

    python3 tests/reference/make_tokenizers.py
"""
import json
import pathlib
import shutil

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = pathlib.Path(__file__).resolve().parent / "tokenizers"
MOST_LISTED = 100  # more tokens than these are given as their number and a hash

LLAMA3_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")

O200K_WORDS = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
               r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
               r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's the dog's; they'll see that we've won, and I'm sure you'd agree.",
    "How vexingly quick daft zebras jump! WE'RE HERE, DON'T SHOUT. In 2024 there were 1234567 of " "them, 3.14159 each.",
    "    def encode(self, text):\n        return [self.ids[word] for word in text.split()]\n\n\n",
    "if (x >= 10 && y != 0) {\n\t\treturn a[i++] * -b;\r\n}\r\n// comment ----------------- ======\n",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Été à la plage, garçon naïf, cœur.",
    "Съешь ещё этих мягких французских булок, да выпей чаю. Ελληνικά: Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "我能吞下玻璃而不伤身体。日本語のテキスト、カタカナとひらがな。한국어 텍스트도 있습니다. ภาษาไทยไม่มีช่องว่าง",
    "हिन्दी में कुछ पाठ। العربية من اليمين إلى اليسار، ١٢٣٤. עברית מימין לשמאל. Tiếng Việt có dấu.",
    "😀😃 👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ ½ ² Ⅷ № € £ ¥ → ⇒ ∀x∈ℝ … “quoted” — dash",
]

TEXTS = {
    "empty": "",
    "one letter": "a",
    "one space": " ",
    "sentence": "The quick brown fox can't jump over 12345 lazy dogs.",
    "contractions": "I'm you're he's we've they'll I'd don't",
    "contractions in capitals": "I'M YOU'RE HE'S WE'VE THEY'LL I'D DON'T 'S'T'RE'VE'M'LL'D 'Sa 'tA it'ſ ’s 'K",
    "runs of spaces": "a  b   c    d     e      f  ",
    "leading spaces": "   leading",
    "trailing spaces": "trailing   ",
    "only spaces": "        ",
    "newlines": "a\nb\n\nc\n\n\nd\r\ne\r\n\r\nf\r\rg \n h\n \n\n  i",
    "only newlines": "\n\n\n\n",
    "tabs and odd spaces": "\ta\t\tb\u00a0c\u2003d\u3000e\u180ef\u200bg\u2028h\u2029i\x85j\x0bk\x0cl\x1cm\ufeffn",
    "digits": "1 12 123 1234 12345 1234567890 3.14 1,000,000 0x1F 1e-9 ½²Ⅷ ١٢٣ १२३ 𝟙𝟚𝟛 ٪",
    "fractions among others": "½\u200d👍🏽 a½b½-½ ²³¹¼¾x'½",
    "punctuation": "!?... --- === *** ((())) [] {} <> ,.;: @#$%^&*_+|~`\\/ \"'\"'\n!!\n..\r\n",
    "code": "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i];\n    }\n\n  // done\n",
    "german": "Füße und Bücher, Straße, ÄÖÜ äöü ẞ",
    "russian": "Привет, мир! Ещё раз.",
    "greek": "Οδυσσεύς Ὀδυσσεύς",
    "chinese": "你好，世界！我能吞下玻璃。",
    "japanese": "こんにちは世界。カタカナ ｶﾀｶﾅ",
    "korean": "안녕하세요 세계",
    "korean in parts": "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "thai": "สวัสดีชาวโลก",
    "hindi": "नमस्ते दुनिया क़",
    "arabic": "مرحبا بالعالم ١٢٣",
    "hebrew": "שלום עולם שּׁ",
    "vietnamese": "Tiếng Việt ế e\u0302\u0301",
    "rare scripts": "𓀀𓁐 𐤀𐤁 ᚠᚢ 𝔘𝔫𝔦 ꙮ ﷽ 𠀀𠀁",
    "emoji": "😀👩‍👩‍👧‍👦👍🏽🇩🇪❤️🏴\U000e0067\U000e0062\U000e007f 1️⃣",
    "marks that normal forms change": "e\u0301 é a\u030a Å \u212b q\u0323\u0307 q\u0307\u0323 \u1e9b\u0323 ﬁ ① Ｆ \u2126 \u0344 "
                                      "\u0958 \u0374 \U0001d15e \u0301x",
    "many marks": "a" + "\u0301\u0323\u0327" * 20 + "b",
    "noncharacters": "\ufffe\uffff\U0010ffff \ue000 \u0000 \x01\x7f \u00ad",
    "special tokens": "<|endoftext|>one<|endoftext|> two <|im_start|>user\nhi<|im_end|>\n<|begin_of_text|><|eot_id|>",
    "broken special tokens": "<|endoftext|<|endoftext|>|> <|im_start| <<|im_end|>> <| endoftext |>",
    "added tokens": "x <left> y <right>  z <both>\n\n<both> <word>s <word> s<word>é <word>_ <plain>É<plain>e\u0301 aaab",
    "added tokens side by side": "<left><right><both><word><plain><tool_call></tool_call>  <both>  <both>  ",
    "bytes of many kinds": "".join(map(chr, range(256))),
}
INVALID = {
    "lone byte": b"a\x80b", "cut character": b"a\xe2\x82", "cut character inside": b"\xf0\x9f\x98 x",
    "surrogate": b"\xed\xa0\x80", "overlong": b"\xc0\xaf\xe0\x80\xaf", "too large": b"\xf4\x90\x80\x80 \xff\xfe",
    "latin-1": "Füße à la".encode("latin-1"), "many": bytes(range(256)),
}
LONG = {  # [part, times]
    "long word": ["ab", 20000], "long word of many letters": ["abcdefghijklmnopqrstuvwxyzäöü", 500],
    "long number": ["1234567", 2000], "long dashes": ["-", 10000], "long spaces": [" ", 10000],
    "long newlines": ["\n", 5000], "long chinese": ["我能吞下玻璃", 800], "long marks": ["\u0323\u0301", 3000],
    "long sentence": ["The quick brown fox can't jump.\n\n", 300],
}


def cases():
    """Name, the bytes of the text, and how the test makes them."""
    for name, text in TEXTS.items():
        yield name, text.encode(), {"text": text}
    for name, data in INVALID.items():
        yield name, data, {"hex": data.hex()}
    for name, (part, times) in LONG.items():
        yield name, (part * times).encode(), {"part": part, "times": times}


def fnv1a(ids):
    state = 0xcbf29ce484222325
    for number in ids:
        for byte in number.to_bytes(4, "little"):
            state = (state ^ byte) * 0x100000001b3 % 2**64
    return f"{state:016x}"


def listed(ids):
    return ids if len(ids) <= MOST_LISTED else {"count": len(ids), "fnv1a": fnv1a(ids)}


def train(tokenizer, vocab_size, special):
    texts = CORPUS * 2 + [text for text in TEXTS.values() if "<" not in text]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def byte_level(**options):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **options)


def split_first(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(use_regex=False)])


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, 560, [])
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=True)])
    value = json.loads(tokenizer.to_str())
    # As the published file spells it.
    model = value["model"]
    model["merges"] = [" ".join(pair) for pair in model["merges"]]
    for key in ("type", "byte_fallback", "ignore_merges"):
        del model[key]
    model["continuing_subword_prefix"] = model["end_of_word_suffix"] = ""
    return value, {
        "config.json": {"model_type": "gpt2", "bos_token_id": 560, "eos_token_id": 560},
        "tokenizer_config.json": {"model_max_length": 1024}}


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = split_first(LLAMA3_WORDS)
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 520, [])
    # A word that no merge makes: with ignore_merges it is found whole.
    value = json.loads(tokenizer.to_str())
    value["model"]["vocab"]["Ġmarvellous"] = len(value["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(value))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|reserved_special_token_0|>"]
    tokenizer.add_special_tokens(names)
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return json.loads(tokenizer.to_str()), {
        "tokenizer_config.json": {"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|end_of_text|>"}},
        "generation_config.json": {"bos_token_id": begin, "eos_token_id": [begin + 1, begin + 2]}}


def qwen2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split_first(QWEN2_WORDS)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, 540, [])
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    value = json.loads(tokenizer.to_str())
    decoder = {str(token["id"]): {key: token[key] for key in token if key != "id"} for token in value["added_tokens"]}
    return value, {
        "tokenizer_config.json": {"added_tokens_decoder": decoder, "bos_token": None, "eos_token": "<|im_end|>",
                                  "pad_token": "<|endoftext|>"},
        "generation_config.json": {"eos_token_id": [542, 540], "pad_token_id": 540}}


def added(content, **flags):
    return dict({"content": content, "special": False, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False}, **flags)


def numbered(tokens, first):
    return [dict(token, id=first + i) for i, token in enumerate(tokens)]


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def steps(*before):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*before, BYTES]}}


def variants(value):
    """Changes of the top keys of the GPT-2 one."""
    first = len(value["model"]["vocab"])
    flagged = [added("<|endoftext|>", special=True), added("<left>", lstrip=True), added("<right>", rstrip=True, special=True),
               added("<both>", lstrip=True, rstrip=True), added("<word>", single_word=True),
               added("<plain>\u00c9", normalized=True), added("<plain>", normalized=True), added("aa"), added("aaab"),
               added("the", single_word=True, normalized=True), added("  "), added("世界")]
    yield "added tokens", {"added_tokens": numbered(flagged, first)}
    yield "added tokens, NFC", {"added_tokens": numbered(flagged, first), "normalizer": {"type": "NFC"}}
    yield "added tokens, prefix space", {
        "added_tokens": numbered(flagged, first),
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
    yield "prefix space per piece", {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            split({"String": "e"}, "Isolated"), dict(BYTES, add_prefix_space=True)]}}
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield f"Split, {behavior}", steps(split({"Regex": r"\s|\p{P}"}, behavior))
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield f"Split, {behavior}, inverted", steps(split({"Regex": r"\p{L}\p{M}*|\d"}, behavior, True))
    yield "Split at a text", steps(split({"String": "("}, "MergedWithNext"), split({"String": "'"}, "Removed"))
    yield "Split, empty matches", steps(split({"Regex": r"x*"}, "MergedWithPrevious"))
    yield "Split, escapes", steps(split({"Regex": r"[\S\-]\w\W|\D\d+|\x{e9}|\u00fc+|\x41"}, "Isolated"),
                                  split({"Regex": r"(?<=a).|[^\w\s](?=\S)|\P{L}{2,}|\p{^L}b|\p{Han}+"}, "Isolated"))
    yield "o200k", steps(split({"Regex": O200K_WORDS}, "Isolated"))
    yield "DeepSeek", steps(
        split({"Regex": "[\r\n]"}, "Isolated"), split({"Regex": r"\s?\p{L}+"}, "Isolated"),
        split({"Regex": r"\s?\p{P}+"}, "Isolated"), split({"Regex": "[一-龥ࠀ-一가-퟿]+"}, "Isolated"),
        {"type": "Digits", "individual_digits": True})
    yield "Digits", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": False}, dict(BYTES, use_regex=True)]}}
    for form in ("NFD", "NFKC", "NFKD"):
        yield form, {"normalizer": {"type": form}}
    yield "normalizers in sequence", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "NFC"}]}}
    vocab = {token: i for token, i in value["model"]["vocab"].items() if token not in "eÃ©ðŁ"}
    vocab = {token: i for token, i in vocab.items() if len(token) == 1}
    model = dict(value["model"], vocab=dict(vocab, **{"<unk>": first}), merges=[])
    ends = {"added_tokens": []}
    yield "bytes without a token", {"model": model, **ends}
    yield "unknown token", {"model": dict(model, unk_token="<unk>"), **ends}
    yield "unknown tokens fused", {"model": dict(model, unk_token="<unk>", fuse_unk=True), **ends}


def expected_of(value):
    tokenizer = Tokenizer.from_str(json.dumps(value))
    return {name: listed(tokenizer.encode(data.decode("utf-8", "replace"), add_special_tokens=False).ids)
            for name, data, _ in cases()}


def dump(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    expected = {"texts": {name: made for name, _, made in cases()}, "tokenizers": {}, "variants": []}
    for make in (gpt2, llama3, qwen2):
        value, beside = make()
        folder = HERE / make.__name__
        folder.mkdir(parents=True)
        dump(folder / "tokenizer.json", value)
        for name, content in beside.items():
            dump(folder / name, content)
        expected["tokenizers"][make.__name__] = expected_of(value)
        if make is gpt2:
            base, without = value, expected["tokenizers"]["gpt2"]
    for name, change in variants(base):
        ids = expected_of(dict(base, **change))
        # Only what the change makes different; the others are as in the GPT-2 one.
        ids = {text: tokens for text, tokens in ids.items() if tokens != without[text]}
        expected["variants"].append({"name": name, "change": change, "tokens": ids})
    dump(HERE / "expected.json", expected)


if __name__ == "__main__":
    main()
