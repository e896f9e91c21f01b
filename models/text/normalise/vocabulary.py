"""Tables of English abbreviations, units, currencies and symbols with their words."""

# ruff: noqa: RUF001, SIM905 - signs that look like letters; lists of words

from typing import Final

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July",
    "August", "September", "October", "November", "December",
)  # fmt: skip

SHORT_MONTHS: Final = {name[:3]: name for name in MONTHS if len(name) > 3} | {"Sept": "September"}

DAYS: Final = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday",
    "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip

# As numbers are spoken.
NUMBER_WORDS: Final = tuple(
    "zero oh one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty "
    "ninety hundred thousand million billion trillion point first second third fourth fifth sixth "
    "seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth "
    "seventeenth eighteenth nineteenth twentieth thirtieth hundredth thousandth".split()
)

# Written with a full stop, before a name: the full stop never ends a sentence.
TITLES: Final = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Mx": "Mix", "Dr": "Doctor", "Prof": "Professor",
    "St": "Saint", "Mt": "Mount", "Ft": "Fort", "Sgt": "Sergeant", "Cpl": "Corporal",
    "Pvt": "Private", "Lt": "Lieutenant", "Capt": "Captain", "Cpt": "Captain", "Maj": "Major",
    "Col": "Colonel", "Gen": "General", "Adm": "Admiral", "Cmdr": "Commander", "Sen": "Senator",
    "Rep": "Representative", "Gov": "Governor", "Pres": "President", "Rev": "Reverend",
    "Fr": "Father", "Hon": "Honorable", "Messrs": "Messers", "Supt": "Superintendent",
}  # fmt: skip

# Written with a full stop, after a name.
STREETS: Final = {
    "St": "Street", "Dr": "Drive", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road",
    "Ln": "Lane", "Hwy": "Highway", "Pkwy": "Parkway", "Sq": "Square",
}  # fmt: skip

# Written with a full stop that may also end a sentence.
ABBREVIATIONS: Final = {
    "e.g": "for example", "i.e": "that is", "eg": "for example", "ie": "that is",
    "E.g": "for example", "I.e": "that is", "etc": "et cetera", "vs": "versus",
    "Vs": "versus", "cf": "compare", "Cf": "compare", "viz": "namely", "et al": "et al",
    "approx": "approximately", "Approx": "approximately", "a.k.a": "also known as",
    "w.r.t": "with respect to", "Jr": "Junior", "Sr": "Senior", "Esq": "Esquire",
    "Ph.D": "P H D", "Inc": "Incorporated", "Ltd": "Limited", "Corp": "Corporation",
    "Co": "Company", "Bros": "Brothers", "Dept": "Department", "dept": "department",
    "asst": "assistant", "Asst": "Assistant", "intl": "international", "mgr": "manager",
    "Univ": "University", "Assn": "Association", "Govt": "Government", "govt": "government",
}  # fmt: skip

# Words of their own as well ("to the max."): abbreviations only where the sentence goes on.
MIDWAY: Final = {
    "est": "established", "min": "minimum", "max": "maximum", "misc": "miscellaneous",
    "incl": "including", "excl": "excluding", "ext": "extension", "tel": "telephone",
    "Tel": "Telephone", "temp": "temperature", "avg": "average", "ed": "edition",
    "Min": "Minimum", "dist": "district", "apt": "apartment", "vol": "volume", "chap": "chapter",
}  # fmt: skip

# Written with a full stop before a number; the full stop never ends a sentence.
REFERENCES: Final = {
    "no": "number", "nos": "numbers", "p": "page", "pp": "pages", "vol": "volume",
    "vols": "volumes", "fig": "figure", "figs": "figures", "ch": "chapter", "chap": "chapter",
    "sec": "section", "eq": "equation", "pt": "part", "art": "article", "ca": "circa",
    "l": "line", "ll": "lines", "nn": "notes", "para": "paragraph", "ex": "example",
    "tab": "table", "cl": "clause", "c": "circa", "ver": "version", "ext": "extension",
    "apt": "apartment", "rm": "room", "rte": "route", "bldg": "building",
}  # fmt: skip

# Never end a sentence: what they announce follows.
BEFORE_NAMES: Final = frozenset(
    "e.g i.e eg ie E.g I.e vs Vs v cf Cf viz approx Approx a.k.a w.r.t".split()
)

# Initials that are no person's: a capital after them opens a sentence, but for the names below.
ACRONYMS: Final = frozenset(
    "US USA UK UN EU UAE DC LA NY NYC AD BC BCE CE PHD MD BA MA BS MS MBA RN DDS JD CEO CFO FBI "
    "CIA NASA NATO BBC CNN TV PC ID IQ VIP DNA RSVP RIP PS PO POW MIA ETA FAQ DIY UFO ATM GPS "
    "HQ IRS NBA NFL MIT UCLA AM PM USSR UPS PTA DJ MC HR PR IT AI AC".split()
)
AFTER_ACRONYMS: Final = frozenset(
    "Army Navy Marine Marines Air Coast Space Senate House Congress President Vice Supreme "
    "Department Treasury Government Constitution Capitol Embassy Ambassador Attorney District "
    "Court Bureau Census Route Highway Steel Postal Secretary Representative Senator Virgin "
    "Fish Forest Open Olympic Soccer Food Environmental Federal Marshal Marshals Trade Agency "
    "Central National Patent Customs Immigration Dollar Dollars Treasuries Geological General "
    "Security Parliament Prime Council Commission Charter Secretary-General Human Children Box "
    "Program Programme Student Students Thesis Metro Police United".split()
)
AFTER_TIMES: Final = frozenset(
    "Eastern Central Mountain Pacific Greenwich Standard Daylight Summer Coordinated Universal "
    "Local EST EDT ET CST CDT CT MST MDT MT PST PDT PT GMT UTC BST CET CEST IST JST AEST Zulu "
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April June "
    "July August September October November December".split()
)
# After a street, and after "Inc." or "Jr."
AFTER_STREETS: Final = frozenset(
    "North South East West Northeast Northwest Southeast Southwest Apt Apartment Suite Ste Unit "
    "Floor Station Bridge Journal Market Hotel Park School Church Theatre Theater Pier "
    "Extension Bakery High Day Boulevard Blvd Memorial National Library Airport Limited LLC LLP "
    "Ltd Inc Corp Cork Kildare Galway Mayo Kerry Clare Donegal Wicklow Meath Down Antrim".split()
)
AFTER_SAINT: Final = frozenset(
    "Louis Paul John Peter Mary James Andrew Andrews George Patrick Nicholas Francis Helens "
    "Helena Petersburg Lucia Lucie Thomas Joseph Anne Ann Anna Clair Clare Augustine Vincent "
    "Kitts Croix Moritz Tropez Bernard Albans Catherine Catharines Lawrence Pancras Martin "
    "Michael Stephen Mark Matthew Luke Simon Jude Elmo Charles Cloud Ives Pierre Barth Maarten "
    "Laurent Germain Denis Gallen Agnes Cecilia Christopher David Dominic Benedict Anthony "
    "Giles Jerome Margaret Marie Valentine Joan Barnabas Bartholomew Edmund Ignatius Leonard "
    "Olaf Xavier".split()
)
BEFORE_SAINT: Final = frozenset(
    "Mount Mt Lake Port Fort Ft Cape Point Isle Island Sault East West North South Old Saint Bay "
    "Church Cathedral Feast Hospital Hotel School".split()
)
# Before a street's name: on Main St.
PLACING: Final = frozenset("on along down off up onto at from near between across past of".split())
DETERMINERS: Final = frozenset(
    "the a an my your his her our their this that any every some".split()
)
# Small words that make no sentence of names: "The Bank of the U.S."
CONNECTING: Final = frozenset("of the and a an in at on for to from by or with about".split())
# Before a single capital, which is then no initial: plan B.
LABELLED: Final = frozenset(
    "plan vitamin vitamins hepatitis grade grades group groups type class section option options "
    "exhibit appendix point figure team column row room gate terminal platform building block part "
    "question answer letter unit side size line zone level phase version model series item box "
    "stage chapter track lane door hall ward deck form schedule schedules variant variable node "
    "player person patient product drive disk step key minor major note string candidate exit "
    "influenza category sample bus train pier wing floor problem tier product".split()
)

# A capitalised word after an abbreviation opens a sentence if it is one of these, whatever the
# abbreviation.
OPENERS: Final = frozenset(
    "A After All Also Although An And Another As At Because Before Both But By Can Could Did Do "
    "Does Each Even Every Few First For From Had Has Have He Her Here His How However I If In Is "
    "It Its Just Last Later Let Many May Maybe Meanwhile More Most My Next No Nobody Not Nothing "
    "Now Of On Once One Only Or Other Our Perhaps Please She Should Since So Some Someone Still "
    "Such That The Their Then There These They This Those Though Through Thus To Today Tomorrow "
    "Too Two Under Until Was We Well Were What When Where Which While Who Why Will With Without "
    "Would Yes Yesterday Yet You Your".split()
)

# Before chapter and verse
BIBLE: Final = frozenset(
    "Genesis Exodus Leviticus Numbers Deuteronomy Joshua Judges Ruth Samuel Kings Chronicles Ezra "
    "Nehemiah Esther Job Psalm Psalms Proverbs Ecclesiastes Isaiah Jeremiah Lamentations Ezekiel "
    "Daniel Hosea Joel Amos Obadiah Jonah Micah Nahum Habakkuk Zephaniah Haggai Zechariah Malachi "
    "Matthew Mark Luke John Acts Romans Corinthians Galatians Ephesians Philippians Colossians "
    "Thessalonians Timothy Titus Philemon Hebrews James Peter Jude Revelation".split()
)

SHORT_BOOKS: Final = {
    "Gen": "Genesis", "Exod": "Exodus", "Lev": "Leviticus", "Num": "Numbers",
    "Deut": "Deuteronomy", "Josh": "Joshua", "Judg": "Judges", "Sam": "Samuel", "Kgs": "Kings",
    "Chr": "Chronicles", "Neh": "Nehemiah", "Ps": "Psalm", "Prov": "Proverbs",
    "Eccl": "Ecclesiastes", "Isa": "Isaiah", "Jer": "Jeremiah", "Ezek": "Ezekiel",
    "Dan": "Daniel", "Hos": "Hosea", "Mic": "Micah", "Zech": "Zechariah", "Mal": "Malachi",
    "Matt": "Matthew", "Mt": "Matthew", "Mk": "Mark", "Lk": "Luke", "Jn": "John",
    "Rom": "Romans", "Cor": "Corinthians", "Gal": "Galatians", "Eph": "Ephesians",
    "Phil": "Philippians", "Col": "Colossians", "Thess": "Thessalonians", "Tim": "Timothy",
    "Heb": "Hebrews", "Jas": "James", "Pet": "Peter", "Rev": "Revelation",
}  # fmt: skip

# Begin with an apostrophe, which opens no quotation.
ELIDED: Final = frozenset("bout cause cept em gainst n neath round til tis twas twere".split())

# Signs of a currency: one of it, several of it; the same of its hundredth part
_CURRENCIES: Final = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "US$ USD": ("U S dollar", "U S dollars", "cent", "cents"),
    "C$ CAD": ("Canadian dollar", "Canadian dollars", "cent", "cents"),
    "A$ AUD": ("Australian dollar", "Australian dollars", "cent", "cents"),
    "€ EUR": ("euro", "euros", "cent", "cents"),
    "£ GBP": ("pound", "pounds", "penny", "pence"),
    "¥ JPY": ("yen", "yen", "sen", "sen"),
    "CNY": ("yuan", "yuan", "fen", "fen"),
    "CHF": ("Swiss franc", "Swiss francs", "rappen", "rappen"),
    "₹ INR Rs. Rs": ("rupee", "rupees", "paisa", "paise"),
    "NZ$ NZD": ("New Zealand dollar", "New Zealand dollars", "cent", "cents"),
    "HK$ HKD": ("Hong Kong dollar", "Hong Kong dollars", "cent", "cents"),
    "S$ SGD": ("Singapore dollar", "Singapore dollars", "cent", "cents"),
    "R$ BRL": ("real", "reais", "centavo", "centavos"),
    "MX$ MXN": ("Mexican peso", "Mexican pesos", "centavo", "centavos"),
    "SEK": ("Swedish krona", "Swedish kronor", "ore", "ore"),
    "NOK": ("Norwegian krone", "Norwegian kroner", "ore", "ore"),
    "DKK": ("Danish krone", "Danish kroner", "ore", "ore"),
    "PLN zł": ("zloty", "zlotys", "grosz", "groszy"),
    "₪ ILS": ("shekel", "shekels", "agora", "agorot"),
    "₺ TRY": ("lira", "lira", "kurus", "kurus"),
    "₱ PHP": ("peso", "pesos", "centavo", "centavos"),
    "₦ NGN": ("naira", "naira", "kobo", "kobo"),
    "₫ VND": ("dong", "dong", "xu", "xu"),
    "฿ THB": ("baht", "baht", "satang", "satang"),
    "₴ UAH": ("hryvnia", "hryvnias", "kopiyka", "kopiyky"),
    "₽": ("ruble", "rubles", "kopek", "kopeks"),
    "₩": ("won", "won", "jeon", "jeon"),
    "₿": ("bitcoin", "bitcoins", "satoshi", "satoshis"),
}
CURRENCIES: Final = {sign: words for signs, words in _CURRENCIES.items() for sign in signs.split()}

MAGNITUDES: Final = {
    "k": "thousand", "K": "thousand", "thousand": "thousand", "m": "million", "M": "million",
    "mn": "million", "mm": "million", "million": "million", "bn": "billion", "B": "billion",
    "b": "billion", "billion": "billion", "tn": "trillion", "T": "trillion", "trn": "trillion",
    "trillion": "trillion", "lakh": "lakh", "crore": "crore",
}  # fmt: skip

UNITS: Final = {
    "km": "kilometer", "m": "meter", "cm": "centimeter", "mm": "millimeter", "μm": "micrometer",
    "nm": "nanometer", "mi": "mile", "yd": "yard", "yds": "yard", "ft": "foot", "in.": "inch",
    "kg": "kilogram", "g": "gram", "mg": "milligram", "μg": "microgram", "lb": "pound",
    "lbs": "pound", "oz": "ounce", "t": "ton", "L": "liter", "l": "liter", "mL": "milliliter",
    "ml": "milliliter", "cl": "centiliter", "dl": "deciliter", "gal": "gallon", "pt": "pint",
    "qt": "quart", "tsp": "teaspoon", "tbsp": "tablespoon", "ha": "hectare", "ac": "acre",
    "s": "second", "sec": "second", "secs": "second", "ms": "millisecond", "μs": "microsecond",
    "ns": "nanosecond", "min": "minute", "mins": "minute", "h": "hour", "hr": "hour",
    "hrs": "hour", "wk": "week", "wks": "week", "mo": "month", "yr": "year", "yrs": "year",
    "Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "kB": "kilobyte",
    "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte", "PB": "petabyte",
    "KiB": "kibibyte", "MiB": "mebibyte", "GiB": "gibibyte", "kb": "kilobit", "Mb": "megabit",
    "Gb": "gigabit", "kbps": "kilobit per second", "Mbps": "megabit per second",
    "Gbps": "gigabit per second", "W": "watt", "kW": "kilowatt", "MW": "megawatt",
    "GW": "gigawatt", "kWh": "kilowatt hour", "MWh": "megawatt hour", "V": "volt",
    "mV": "millivolt", "kV": "kilovolt", "mA": "milliamp", "mAh": "milliamp hour", "Ω": "ohm",
    "kΩ": "kiloohm", "dB": "decibel", "Pa": "pascal", "kPa": "kilopascal", "hPa": "hectopascal",
    "mbar": "millibar", "MPa": "megapascal", "GPa": "gigapascal",
    "psi": "P S I", "mol": "mole", "mmol": "millimole", "μmol": "micromole", "nmol": "nanomole",
    "eV": "electron volt", "keV": "kiloelectron volt", "MeV": "megaelectron volt",
    "Wh": "watt hour", "TWh": "terawatt hour", "Ah": "amp hour", "THz": "terahertz",
    "μF": "microfarad", "nF": "nanofarad", "pF": "picofarad", "μA": "microamp", "mW": "milliwatt",
    "lm": "lumen", "hl": "hectoliter", "kN": "kilonewton", "mSv": "millisievert",
    "mmHg": "millimeter of mercury",
    "J": "joule", "kJ": "kilojoule", "cal": "calorie", "kcal": "kilocalorie",
    "Nm": "newton meter", "mph": "mile per hour", "kph": "kilometer per hour",
    "kmh": "kilometer per hour", "rpm": "revolution per minute", "bpm": "beat per minute",
    "fps": "frame per second", "px": "pixel", "dpi": "dot per inch", "°C": "degree Celsius",
    "°F": "degree Fahrenheit", "°": "degree", "ºC": "degree Celsius",
    "sq ft": "square foot", "sq mi": "square mile", "sq km": "square kilometer",
    "sqft": "square foot", "cu ft": "cubic foot", "fl oz": "fluid ounce",
}  # fmt: skip

# What follows a slash: "$5/hour", "90 km/h".
PER: Final = {
    "second": "second", "minute": "minute", "hour": "hour", "day": "day", "week": "week",
    "month": "month", "year": "year", "person": "person", "night": "night", "hr": "hour",
    "wk": "week", "mo": "month", "yr": "year", "lb": "pound", "kg": "kilogram", "oz": "ounce",
    "GB": "gigabyte",
}  # fmt: skip

IRREGULAR_PLURALS: Final = {
    "foot": "feet", "inch": "inches", "hertz": "hertz", "kilohertz": "kilohertz",
    "megahertz": "megahertz", "gigahertz": "gigahertz", "terahertz": "terahertz",
    "degree": "degrees", "P S I": "P S I",
    "millimeter of mercury": "millimeters of mercury", "century": "centuries",
}  # fmt: skip

ADDRESS_MARKS: Final = {
    ".": "dot", "/": "slash", "-": "dash", "_": "underscore", "@": "at", ":": "colon",
    "?": "question mark", "=": "equals", "&": "and", "#": "hash", "%": "percent", "+": "plus",
    "~": "tilde",
}  # fmt: skip

# Endings of addresses that are spelled out, and the others that make a bare word an address.
SPELLED_DOMAINS: Final = frozenset("ai io uk us eu tv fm ly gg cc fr jp cn ch nl".split())
SPOKEN_DOMAINS: Final = frozenset("com org net edu gov mil dev app info biz co me de".split())

SYMBOLS: Final = {
    "&": "and", "@": "at", "%": "percent", "‰": "per mille", "+": "plus", "=": "equals",
    "×": "times", "÷": "divided by", "±": "plus or minus", "≈": "approximately equals",
    "≠": "is not equal to", "≤": "is at most", "≥": "is at least", "√": "square root of",
    "∞": "infinity", "°": "degrees", "©": "copyright", "§": "section", "¶": "paragraph",
    "$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee", "₽": "ruble",
    "₩": "won", "₿": "bitcoin", "¢": "cent", "→": "to", "⇒": "to", "/": "slash", "\\": "backslash",
    "♯": "sharp", "♭": "flat",
}  # fmt: skip

# Followed by a roman numeral, these are persons: "Henry VIII" is "Henry the eighth".
REGNAL_NAMES: Final = frozenset(
    "Alexander Benedict Catherine Charles Clement Edward Elizabeth Francis Frederick George "
    "Gregory Gustav Henry Innocent Ivan James John Leo Leopold Louis Mary Napoleon Nicholas Otto "
    "Paul Peter Philip Pius Ramses Richard Urban Wilhelm William".split()
)
