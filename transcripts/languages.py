"""Languages as clients name them: ISO 639-1, 639-2 or 639-3 codes, with a region or without, or English names."""

import re

# Codes in ISO 639-1, in 639-3 and, where that differs, 639-2/B; English names, those of OpenAI's API if it has them.
_TABLE = """
aa aar: afar, ab abk: abkhazian, ae ave: avestan, af afr: afrikaans, ak aka: akan, am amh: amharic,
an arg: aragonese, ar ara: arabic, as asm: assamese, av ava: avaric, ay aym: aymara, az aze: azerbaijani,
ba bak: bashkir, be bel: belarusian, bg bul: bulgarian, bi bis: bislama, bm bam: bambara, bn ben: bengali,
bo bod tib: tibetan, br bre: breton, bs bos: bosnian, ca cat: catalan, ce che: chechen, ch cha: chamorro,
co cos: corsican, cr cre: cree, cs ces cze: czech, cu chu: church slavonic, cv chv: chuvash, cy cym wel: welsh,
da dan: danish, de deu ger: german, dv div: divehi, dz dzo: dzongkha, ee ewe: ewe, el ell gre: greek,
en eng: english, eo epo: esperanto, es spa: spanish, et est: estonian, eu eus baq: basque, fa fas per: persian,
ff ful: fulah, fi fin: finnish, fj fij: fijian, fo fao: faroese, fr fra fre: french, fy fry: western frisian,
ga gle: irish, gd gla: scottish gaelic, gl glg: galician, gn grn: guarani, gu guj: gujarati, gv glv: manx,
ha hau: hausa, he heb: hebrew, hi hin: hindi, ho hmo: hiri motu, hr hrv: croatian, ht hat: haitian creole,
hu hun: hungarian, hy hye arm: armenian, hz her: herero, ia ina: interlingua, id ind: indonesian,
ie ile: interlingue, ig ibo: igbo, ii iii: sichuan yi, ik ipk: inupiaq, io ido: ido, is isl ice: icelandic,
it ita: italian, iu iku: inuktitut, ja jpn: japanese, jv jav: javanese, ka kat geo: georgian, kg kon: kongo,
ki kik: kikuyu, kj kua: kuanyama, kk kaz: kazakh, kl kal: kalaallisut, km khm: khmer, kn kan: kannada,
ko kor: korean, kr kau: kanuri, ks kas: kashmiri, ku kur: kurdish, kv kom: komi, kw cor: cornish, ky kir: kyrgyz,
la lat: latin, lb ltz: luxembourgish, lg lug: ganda, li lim: limburgish, ln lin: lingala, lo lao: lao,
lt lit: lithuanian, lu lub: luba-katanga, lv lav: latvian, mg mlg: malagasy, mh mah: marshallese, mi mri mao: maori,
mk mkd mac: macedonian, ml mal: malayalam, mn mon: mongolian, mr mar: marathi, ms msa may: malay, mt mlt: maltese,
my mya bur: myanmar, na nau: nauru, nb nob: norwegian bokmål, nd nde: north ndebele, ne nep: nepali, ng ndo: ndonga,
nl nld dut: dutch, nn nno: nynorsk, no nor: norwegian, nr nbl: south ndebele, nv nav: navajo, ny nya: chichewa,
oc oci: occitan, oj oji: ojibwa, om orm: oromo, or ori: oriya, os oss: ossetian, pa pan: punjabi, pi pli: pali,
pl pol: polish, ps pus: pashto, pt por: portuguese, qu que: quechua, rm roh: romansh, rn run: rundi,
ro ron rum: romanian, ru rus: russian, rw kin: kinyarwanda, sa san: sanskrit, sc srd: sardinian, sd snd: sindhi,
se sme: northern sami, sg sag: sango, si sin: sinhala, sk slk slo: slovak, sl slv: slovenian, sm smo: samoan,
sn sna: shona, so som: somali, sq sqi alb: albanian, sr srp: serbian, ss ssw: swati, st sot: sotho,
su sun: sundanese, sv swe: swedish, sw swa: swahili, ta tam: tamil, te tel: telugu, tg tgk: tajik, th tha: thai,
ti tir: tigrinya, tk tuk: turkmen, tl tgl: tagalog, tn tsn: tswana, to ton: tongan, tr tur: turkish, ts tso: tsonga,
tt tat: tatar, tw twi: twi, ty tah: tahitian, ug uig: uyghur, uk ukr: ukrainian, ur urd: urdu, uz uzb: uzbek,
ve ven: venda, vi vie: vietnamese, vo vol: volapük, wa wln: walloon, wo wol: wolof, xh xho: xhosa, yi yid: yiddish,
yo yor: yoruba, za zha: zhuang, zh zho chi: chinese, zu zul: zulu
"""
# Further names that OpenAI's API takes.
_OTHER_NAMES = """
my burmese, ca valencian, nl flemish, ht haitian, lb letzeburgesch, ps pushto, pa panjabi, ro moldavian, ro moldovan,
si sinhalese, es castilian, zh mandarin
"""
_ENTRIES = [(*codes.split(), name) for codes, name in (entry.split(": ") for entry in _TABLE.strip().split(","))]
NAMES = {code: name for code, *_, name in _ENTRIES}
_CODES = {name: code for code, name in NAMES.items()}
_CODES |= {name: code for code, _, name in (entry.strip().partition(" ") for entry in _OTHER_NAMES.split(","))}
_SHORT_CODES = {any_code: codes[0] for *codes, _ in _ENTRIES for any_code in codes}
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
