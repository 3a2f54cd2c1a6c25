"""Languages as clients name them: ISO 639-1 codes, with a region or without, or English names."""

import re

# ISO 639-1. The names are those that OpenAI's API gives, where it has the language.
_TABLE = """
aa afar, ab abkhazian, ae avestan, af afrikaans, ak akan, am amharic, an aragonese, ar arabic, as assamese,
av avaric, ay aymara, az azerbaijani, ba bashkir, be belarusian, bg bulgarian, bi bislama, bm bambara,
bn bengali, bo tibetan, br breton, bs bosnian, ca catalan, ce chechen, ch chamorro, co corsican, cr cree,
cs czech, cu church slavonic, cv chuvash, cy welsh, da danish, de german, dv divehi, dz dzongkha, ee ewe,
el greek, en english, eo esperanto, es spanish, et estonian, eu basque, fa persian, ff fulah, fi finnish,
fj fijian, fo faroese, fr french, fy western frisian, ga irish, gd scottish gaelic, gl galician, gn guarani,
gu gujarati, gv manx, ha hausa, he hebrew, hi hindi, ho hiri motu, hr croatian, ht haitian creole,
hu hungarian, hy armenian, hz herero, ia interlingua, id indonesian, ie interlingue, ig igbo,
ii sichuan yi, ik inupiaq, io ido, is icelandic, it italian, iu inuktitut, ja japanese, jv javanese,
ka georgian, kg kongo, ki kikuyu, kj kuanyama, kk kazakh, kl kalaallisut, km khmer, kn kannada, ko korean,
kr kanuri, ks kashmiri, ku kurdish, kv komi, kw cornish, ky kyrgyz, la latin, lb luxembourgish, lg ganda,
li limburgish, ln lingala, lo lao, lt lithuanian, lu luba-katanga, lv latvian, mg malagasy, mh marshallese,
mi maori, mk macedonian, ml malayalam, mn mongolian, mr marathi, ms malay, mt maltese, my myanmar, na nauru,
nb norwegian bokmål, nd north ndebele, ne nepali, ng ndonga, nl dutch, nn nynorsk, no norwegian,
nr south ndebele, nv navajo, ny chichewa, oc occitan, oj ojibwa, om oromo, or oriya, os ossetian, pa punjabi,
pi pali, pl polish, ps pashto, pt portuguese, qu quechua, rm romansh, rn rundi, ro romanian, ru russian,
rw kinyarwanda, sa sanskrit, sc sardinian, sd sindhi, se northern sami, sg sango, si sinhala, sk slovak,
sl slovenian, sm samoan, sn shona, so somali, sq albanian, sr serbian, ss swati, st sotho, su sundanese,
sv swedish, sw swahili, ta tamil, te telugu, tg tajik, th thai, ti tigrinya, tk turkmen, tl tagalog,
tn tswana, to tongan, tr turkish, ts tsonga, tt tatar, tw twi, ty tahitian, ug uyghur, uk ukrainian,
ur urdu, uz uzbek, ve venda, vi vietnamese, vo volapük, wa walloon, wo wolof, xh xhosa, yi yiddish,
yo yoruba, za zhuang, zh chinese, zu zulu
"""
NAMES = {code: name for code, _, name in (entry.strip().partition(" ") for entry in _TABLE.split(","))}
_CODES = {name: code for code, name in NAMES.items()}
_TAG = re.compile(r"([a-z]{2})(?:[-_][a-z0-9]{1,8})*")  # RFC 5646, and as POSIX writes it


def language_code(text: str) -> str:
    """Return the ISO 639-1 code of a language: "en" for "en", "en-US", "en_GB" and "English".

    Raises:
        ValueError: If no language is called that.
    """
    name = text.strip().lower()
    tag = _TAG.fullmatch(name)
    code = tag[1] if tag else _CODES.get(name, "")
    if code not in NAMES:
        raise ValueError(f"{text[:40]!r} is not an ISO 639-1 language code")
    return code
