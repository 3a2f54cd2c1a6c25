"""Languages as clients name them: ISO 639-1, 639-2 or 639-3 codes, with a region or without, or English names."""

import re

# ISO 639-1 codes and English names: those of OpenAI's API, if it has the language.
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
# Their codes in ISO 639-3, and in ISO 639-2/B where that differs.
_LONGER_CODES = """
aa aar, ab abk, ae ave, af afr, ak aka, am amh, an arg, ar ara, as asm, av ava, ay aym, az aze, ba bak, be bel, bg
bul, bi bis, bm bam, bn ben, bo bod tib, br bre, bs bos, ca cat, ce che, ch cha, co cos, cr cre, cs ces cze, cu chu,
cv chv, cy cym wel, da dan, de deu ger, dv div, dz dzo, ee ewe, el ell gre, en eng, eo epo, es spa, et est, eu eus
baq, fa fas per, ff ful, fi fin, fj fij, fo fao, fr fra fre, fy fry, ga gle, gd gla, gl glg, gn grn, gu guj, gv glv,
ha hau, he heb, hi hin, ho hmo, hr hrv, ht hat, hu hun, hy hye arm, hz her, ia ina, id ind, ie ile, ig ibo, ii iii,
ik ipk, io ido, is isl ice, it ita, iu iku, ja jpn, jv jav, ka kat geo, kg kon, ki kik, kj kua, kk kaz, kl kal, km
khm, kn kan, ko kor, kr kau, ks kas, ku kur, kv kom, kw cor, ky kir, la lat, lb ltz, lg lug, li lim, ln lin, lo lao,
lt lit, lu lub, lv lav, mg mlg, mh mah, mi mri mao, mk mkd mac, ml mal, mn mon, mr mar, ms msa may, mt mlt, my mya
bur, na nau, nb nob, nd nde, ne nep, ng ndo, nl nld dut, nn nno, no nor, nr nbl, nv nav, ny nya, oc oci, oj oji, om
orm, or ori, os oss, pa pan, pi pli, pl pol, ps pus, pt por, qu que, rm roh, rn run, ro ron rum, ru rus, rw kin, sa
san, sc srd, sd snd, se sme, sg sag, si sin, sk slk slo, sl slv, sm smo, sn sna, so som, sq sqi alb, sr srp, ss ssw,
st sot, su sun, sv swe, sw swa, ta tam, te tel, tg tgk, th tha, ti tir, tk tuk, tl tgl, tn tsn, to ton, tr tur, ts
tso, tt tat, tw twi, ty tah, ug uig, uk ukr, ur urd, uz uzb, ve ven, vi vie, vo vol, wa wln, wo wol, xh xho, yi yid,
yo yor, za zha, zh zho chi, zu zul
"""
# Further names that OpenAI's API takes.
_OTHER_NAMES = """
my burmese, ca valencian, nl flemish, ht haitian, lb letzeburgesch, ps pushto, pa panjabi, ro moldavian, ro moldovan,
si sinhalese, es castilian, zh mandarin
"""
NAMES = {code: name for code, _, name in (entry.strip().partition(" ") for entry in _TABLE.split(","))}
_CODES = {name: code for code, name in NAMES.items()}
_CODES |= {name: code for code, _, name in (entry.strip().partition(" ") for entry in _OTHER_NAMES.split(","))}
_SHORT_CODES = {code: code for code in NAMES}
_SHORT_CODES |= {
    longer: code for code, *codes in (entry.split() for entry in _LONGER_CODES.split(",")) for longer in codes
}
_TAG = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*")  # RFC 5646, or POSIX with an underscore


def language_code(text: str) -> str:
    """Return the ISO 639-1 code of a language: "en" for "en", "en-US", "en_GB", "eng" and "English".

    Raises:
        ValueError: if there is no such language.
    """
    name = text.strip().lower()
    tag = _TAG.fullmatch(name)
    code = _CODES.get(name) or (_SHORT_CODES.get(tag[1]) if tag else None)
    if code is None:
        raise ValueError(f"{text[:40]!r} is not a language: use a code ('en') or a name ('english')")
    return code
