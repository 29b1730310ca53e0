"""The lexicon of the built-in corpus, as tables; ``phrasebook_lexicon`` reads them."""

# english[/plural] gender nominative/plural[/genitive ending]; w: weak masculine. Each has one translation.
NOUNS = {
    "person": """
        man/men m Mann/Männer/es, woman/women f Frau/Frauen, boy w Junge/Jungen, girl n Mädchen/Mädchen,
        child/children n Kind/Kinder/es, teacher m Lehrer/Lehrer, student w Student/Studenten,
        doctor m Arzt/Ärzte/es, farmer w Bauer/Bauern, baker m Bäcker/Bäcker, neighbour w Nachbar/Nachbarn,
        friend m Freund/Freunde/es, uncle m Onkel/Onkel, aunt f Tante/Tanten,
        grandmother f Großmutter/Großmütter, brother m Bruder/Brüder, grandfather m Großvater/Großväter,
        sister f Schwester/Schwestern, mother f Mutter/Mütter, father m Vater/Väter, son m Sohn/Söhne/es,
        daughter f Tochter/Töchter, king m König/Könige, queen f Königin/Königinnen,
        princess f Prinzessin/Prinzessinnen, policeman/policemen w Polizist/Polizisten,
        waiter m Kellner/Kellner, nurse f Krankenschwester/Krankenschwestern, gardener m Gärtner/Gärtner,
        painter m Maler/Maler,
        lawyer m Anwalt/Anwälte, judge m Richter/Richter,
        soldier w Soldat/Soldaten, driver m Fahrer/Fahrer,
        hunter m Jäger/Jäger, fisherman/fishermen m Fischer/Fischer, thief/thieves m Dieb/Diebe/es,
        guest m Gast/Gäste/es, tourist w Tourist/Touristen, colleague w Kollege/Kollegen,
        customer w Kunde/Kunden""",
    "animal": """
        dog m Hund/Hunde/es, cat f Katze/Katzen, horse n Pferd/Pferde/es, cow f Kuh/Kühe,
        pig n Schwein/Schweine/es, mouse/mice f Maus/Mäuse, bird m Vogel/Vögel, duck f Ente/Enten,
        bear w Bär/Bären, goose/geese f Gans/Gänse, rabbit n Kaninchen/Kaninchen, lion w Löwe/Löwen,
        elephant w Elefant/Elefanten, monkey w Affe/Affen, wolf/wolves m Wolf/Wölfe/es, fox m Fuchs/Füchse/es,
        goat f Ziege/Ziegen, squirrel n Eichhörnchen/Eichhörnchen""",
    "dish": """
        egg n Ei/Eier/es, potato f Kartoffel/Kartoffeln, soup f Suppe/Suppen, sausage f Wurst/Würste,
        mushroom m Pilz/Pilze/es""",
    "fruit": """
        apple m Apfel/Äpfel, pear f Birne/Birnen, banana f Banane/Bananen, cherry f Kirsche/Kirschen,
        tomato f Tomate/Tomaten, carrot f Karotte/Karotten, orange f Orange/Orangen""",
    "bakery": "cake m Kuchen/Kuchen, roll n Brötchen/Brötchen, pizza f Pizza/Pizzen",
    "drink": """
        milk f Milch, water n Wasser, coffee m Kaffee, tea m Tee, juice m Saft/, beer n Bier/, wine m Wein/,
        lemonade f Limonade""",
    "mass": """
        bread n Brot//es, butter f Butter, honey m Honig, cheese m Käse, meat n Fleisch//es, rice m Reis//es,
        chocolate f Schokolade, jam f Marmelade""",
    "text": """
        book n Buch/Bücher/es, letter m Brief/Briefe/es, newspaper f Zeitung/Zeitungen, novel m Roman/Romane,
        magazine f Zeitschrift/Zeitschriften, poem n Gedicht/Gedichte, report m Bericht/Berichte,
        story f Geschichte/Geschichten, article m Artikel/Artikel, diary n Tagebuch/Tagebücher,
        contract m Vertrag/Verträge""",
    "clothes": """
        coat m Mantel/Mäntel, jacket f Jacke/Jacken, dress n Kleid/Kleider/es, shirt n Hemd/Hemden/es,
        hat m Hut/Hüte, shoe m Schuh/Schuhe, skirt m Rock/Röcke/es, sweater m Pullover/Pullover,
        scarf/scarves m Schal/Schals, glove m Handschuh/Handschuhe, sock f Socke/Socken,
        boot m Stiefel/Stiefel""",
    "vehicle": """
        car n Auto/Autos, bus m Bus/Busse/ses, bicycle n Fahrrad/Fahrräder, ship n Schiff/Schiffe/es,
        boat n Boot/Boote/es, truck m Lastwagen/Lastwagen, plane n Flugzeug/Flugzeuge, train m Zug/Züge/es,
        tram f Straßenbahn/Straßenbahnen, motorcycle n Motorrad/Motorräder""",
    "standing": """
        cup f Tasse/Tassen, glass n Glas/Gläser/es, bottle f Flasche/Flaschen, vase f Vase/Vasen,
        bucket m Eimer/Eimer, basket m Korb/Körbe/es, suitcase m Koffer/Koffer, pot m Topf/Töpfe/es,
        box f Kiste/Kisten, candle f Kerze/Kerzen""",
    "lying": """
        key m Schlüssel/Schlüssel, knife/knives n Messer/Messer, fork f Gabel/Gabeln, spoon m Löffel/Löffel,
        pencil m Bleistift/Bleistifte, umbrella m Regenschirm/Regenschirme, ticket f Fahrkarte/Fahrkarten,
        camera f Kamera/Kameras, ball m Ball/Bälle, map f Landkarte/Landkarten, ring m Ring/Ringe,
        pillow n Kissen/Kissen, blanket f Decke/Decken, gift n Geschenk/Geschenke""",
    "device": """
        lamp f Lampe/Lampen, computer m Computer/Computer, radio n Radio/Radios,
        television m Fernseher/Fernseher, machine f Maschine/Maschinen""",
    "picture": "picture n Bild/Bilder/es, photo n Foto/Fotos, mirror m Spiegel/Spiegel, clock f Uhr/Uhren",
    "opening": "door f Tür/Türen, window n Fenster/Fenster",
    "surface": """
        table m Tisch/Tische/es, chair m Stuhl/Stühle, bed n Bett/Betten/es, sofa n Sofa/Sofas,
        shelf/shelves n Regal/Regale, desk m Schreibtisch/Schreibtische, bench f Bank/Bänke""",
    "wall": "wall f Wand/Wände",
    "place": """
        kitchen f Küche/Küchen, garden m Garten/Gärten, house n Haus/Häuser/es, forest m Wald/Wälder/es,
        park m Park/Parks, city f Stadt/Städte, village n Dorf/Dörfer/es, school f Schule/Schulen,
        hospital n Krankenhaus/Krankenhäuser/es, office n Büro/Büros, museum n Museum/Museen,
        hotel n Hotel/Hotels, restaurant n Restaurant/Restaurants, castle n Schloss/Schlösser/es,
        church f Kirche/Kirchen, library f Bibliothek/Bibliotheken, cellar m Keller/Keller,
        room n Zimmer/Zimmer, theatre n Theater/Theater, shop n Geschäft/Geschäfte""",
    "spot": """
        lake m See/Seen, river m Fluss/Flüsse/es, station m Bahnhof/Bahnhöfe, beach m Strand/Strände/es,
        bridge f Brücke/Brücken""",
    "idea": """
        problem n Problem/Probleme, idea f Idee/Ideen, question f Frage/Fragen, answer f Antwort/Antworten,
        plan m Plan/Pläne, mistake m Fehler/Fehler, rule f Regel/Regeln, task f Aufgabe/Aufgaben,
        sentence m Satz/Sätze/es, dream m Traum/Träume/es""",
    "event": """
        wedding f Hochzeit/Hochzeiten, party f Party/Partys, competition m Wettbewerb/Wettbewerbe,
        concert n Konzert/Konzerte, meeting f Besprechung/Besprechungen, journey f Reise/Reisen""",
}  # fmt: skip
GROUPS = {
    "being": "person animal",
    "food": "fruit dish bakery",
    "flat": "lying text clothes",
    "thing": "standing lying text clothes device picture",
    "goods": "standing lying text clothes device picture vehicle fruit bakery",
}

# english german classes; comparative and superlative after slashes where they are irregular;
# c: is compared; s: also used in the superlative.
ADJECTIVES = """
old alt/älter/ältest s being thing vehicle place; young jung/jünger/jüngst s being
new neu thing vehicle text; big groß/größer/größt s animal standing device picture vehicle place fruit
small klein s being thing vehicle place food; beautiful schön s person clothes picture vehicle place
ugly hässlich c animal clothes picture; good/better/best gut/besser/best s text idea event food
bad/worse/worst schlecht c text idea food; friendly freundlich c person; strong stark/stärker s being
clever klug/klüger s being; lazy faul c being; hungry hungrig being; tired müde being
happy glücklich c being; sad traurig c being; poor arm/ärmer c person; rich reich s person
famous berühmt s person picture place; brave mutig c being
sick krank being; expensive teuer s thing vehicle drink
cheap billig c thing vehicle fruit; heavy schwer c standing device; light leicht c clothes lying
difficult schwierig c idea; easy einfach c idea; important wichtig s text idea event
interesting interessant c text idea place event; boring langweilig c text event
long lang/länger s text idea event clothes; fresh frisch food drink mass
sweet süß c fruit bakery mass; delicious lecker food mass; cold kalt/kälter c drink dish
hot heiß c drink dish; warm warm/wärmer c clothes place; red rot clothes standing vehicle
blue blau clothes standing vehicle; green grün clothes standing vehicle
yellow gelb clothes standing vehicle; black schwarz clothes animal vehicle
white weiß clothes animal standing
dark dunkel c place; quiet ruhig c place; modern modern c place device vehicle
clean sauber standing clothes place vehicle; dirty schmutzig standing clothes vehicle
empty leer standing place; broken kaputt device vehicle; fast schnell s vehicle animal
dangerous gefährlich c animal place
strange seltsam person text idea picture; funny lustig c person text idea
"""  # fmt: skip

# english[/past[/participle]] german[/third[/participle]][*: perfect with sein] subjects:objects [=: a state]
# The German prefix before + is separable. Irregular forms are given, regular ones are derived.
TRANSITIVE = """
eat/ate/eaten essen/isst/gegessen person:food,mass; eat/ate/eaten fressen/frisst/gefressen animal:fruit,mass
drink/drank/drunk trinken//getrunken person:drink; cook kochen person:dish
taste probieren person:food,drink,mass; order bestellen//bestellt person:food,drink
bake backen/backt/gebacken person:bakery
read/read lesen/liest/gelesen person:text; write/wrote/written schreiben//geschrieben person:text
translate übersetzen//übersetzt person:text; sign unterschreiben//unterschrieben person:text
tear_up/tore/torn zerreißen//zerrissen person:text; wear/wore/worn tragen/trägt/getragen person:clothes
put_on/put an+ziehen//gezogen person:clothes; take_off/took/taken aus+ziehen//gezogen person:clothes
try_on an+probieren//probiert person:clothes; wash waschen/wäscht/gewaschen person:clothes,vehicle,fruit
buy/bought kaufen person:goods; sell/sold verkaufen person:goods; find/found finden//gefunden being:thing
lose/lost verlieren//verloren person:thing =; look_for suchen being:thing,person; need brauchen person:goods =
bring_along/brought mit+bringen//gebracht person:goods; pick_up ab+holen person:person
pick_up auf+heben//gehoben person:flat
forget/forgot/forgotten vergessen/vergisst/vergessen person:thing,idea =
hide/hid/hidden verstecken person:thing; clean putzen person:device,picture,opening,clothes
paint malen person:picture; steal/stole/stolen stehlen/stiehlt/gestohlen person:thing
pack ein+packen person:flat; turn_on ein+schalten person:device; turn_off aus+schalten person:device
throw_away/threw/thrown weg+werfen/wirft/geworfen person:flat
describe beschreiben//beschrieben person:thing,person,idea,place; repair reparieren person:vehicle,device
use benutzen person:device,lying
open öffnen person:opening; close schließen//geschlossen person:opening
lock ab+schließen//geschlossen person:opening; see/saw/seen sehen/sieht/gesehen being:being,thing,vehicle =
hear/heard hören being:being,vehicle =; love lieben person:being =
know/knew/known kennen//gekannt person:person,place,text =; meet/met treffen/trifft/getroffen person:person
visit besuchen person:person,place; invite ein+laden/lädt/geladen person:person
call an+rufen//gerufen person:person; greet begrüßen person:person; feed/fed füttern person:animal
chase jagen animal:animal; bite/bit/bitten beißen//gebissen animal:person
wake_up/woke/woken auf+wecken being:being; hug umarmen//umarmt person:person; kiss küssen person:person
watch beobachten being:being; miss vermissen person:person =; miss verpassen person:vehicle
understand/understood verstehen//verstanden person:person,text,idea =
admire bewundern person:person,picture; park parken person:car,bus,truck,motorcycle
explain erklären person:idea; solve lösen person:problem
like mögen//gemocht person:being,food,drink,place,clothes =
discuss besprechen/bespricht/besprochen person:idea,text; notice bemerken//bemerkt person:mistake,being =
scare erschrecken//erschreckt animal:being; rescue retten person:being
prepare vor+bereiten//bereitet person:event
leave/left verlassen/verlässt/verlassen person:place; bark_at an+bellen//gebellt dog:being
praise loben person:person; look_at an+sehen/sieht/gesehen being:picture,being
give_back/gave/given zurück+geben/gibt/gegeben person:thing
protect schützen person:being
"""  # fmt: skip
INTRANSITIVE = """
sleep/slept schlafen/schläft/geschlafen being; laugh lachen person; cry weinen person; dance tanzen person
sing/sang/sung singen//gesungen person; work arbeiten person; wait warten being
swim/swam/swum schwimmen//geschwommen* being; arrive an+kommen//gekommen* being,vehicle
get_up/got auf+stehen//gestanden* person; fall_asleep/fell/fallen ein+schlafen/schläft/geschlafen* being
smile lächeln person; snore schnarchen person
disappear verschwinden//verschwunden* being,thing
leave/left ab+fahren/fährt/gefahren* ship,boat,car,truck,train,tram,bus
stop an+halten/hält/gehalten car,bus,truck,tram,train,motorcycle; play spielen child; cook kochen person
come_back/came/come zurück+kommen//gekommen* being; run_away/ran/run weg+laufen/läuft/gelaufen* being
fly_away/flew/flown weg+fliegen//geflogen* bird
wake_up/woke/woken auf+wachen* being; shout schreien//geschrien person; hurry sich_beeilen person
rest sich_aus+ruhen//geruht being; get_dressed/got sich_an+ziehen//gezogen person
"""  # fmt: skip
DATIVE_VERBS = """
help helfen/hilft/geholfen person:person; thank danken person:person; follow folgen* being:being
trust vertrauen//vertraut person:person =; congratulate gratulieren person:person
listen_to zu+hören person:person; answer antworten person:person; believe glauben person:person =
belong_to gehören//gehört thing:person =
wave_to zu+winken person:person
"""
DITRANSITIVE = """
give/gave/given geben/gibt/gegeben goods; show/showed/shown zeigen thing; send/sent schicken flat
sell/sold verkaufen goods; lend/lent leihen//geliehen thing; bring/brought bringen//gebracht goods
recommend empfehlen/empfiehlt/empfohlen text,dish; explain erklären idea
promise versprechen/verspricht/versprochen gift; read/read vor+lesen/liest/gelesen text
"""
# english_preposition german preposition/case subjects:objects
OBLIQUE = """
wait for warten auf/acc being:person,vehicle
talk about sprechen/spricht/gesprochen über/acc person:person,text,idea,event
think/thought of denken//gedacht an/acc person:person,idea,event
dream/dreamt of träumen von/dat person:person,place,event
laugh about lachen über/acc person:story,mistake,idea; play with spielen mit/dat being:animal,child,ball
work with arbeiten mit/dat person:person; look after auf+passen auf/acc person:being
dance with tanzen mit/dat person:person; talk to sprechen/spricht/gesprochen mit/dat person:person
ask for bitten//gebeten um/acc person:food,drink,answer
take/took/taken part_in teil+nehmen/nimmt/genommen an/dat person:event
remember - sich_erinnern an/acc person:person,idea,event; look forward_to sich_freuen auf/acc person:event
complain about sich_beschweren über/acc person:person,food,event
apologize to sich_entschuldigen bei/dat person:person
take/took/taken care_of sich_kümmern um/acc person:being
prepare for sich_vor+bereiten//bereitet auf/acc person:event
fall/fell/fallen in_love_with sich_verlieben in/acc person:person
say/said goodbye_to sich_verabschieden von/dat person:person
smile about lächeln über/acc person:person,story,mistake,idea
"""
# Motion takes a direction (in + accusative), position a place (in + dative).
MOTION = """
go/went/gone gehen//gegangen* being; run/ran/run laufen/läuft/gelaufen* being
drive/drove/driven fahren/fährt/gefahren* person; jump springen//gesprungen* animal; climb klettern* being
fly/flew/flown fliegen//geflogen* bird; walk spazieren* person
"""
POSITION = """
lie/lay/lain liegen//gelegen flat,animal; stand/stood stehen//gestanden standing,device,person
sit/sat sitzen//gesessen being; hang/hung hängen//gehangen picture
"""
PUTTING = """
put/put stellen person:standing,device; put/put legen person:flat; hang/hung hängen//gehängt person:picture
"""
# These take a clause with that or, if they ask, with whether.
REPORT = """
say/said sagen person; think/thought denken//gedacht person; hope hoffen person; ask fragen person
know/knew/known wissen/weiß/gewusst person =; believe glauben person =; hear/heard hören person =
claim behaupten person
"""
# These take an infinitive: she tries to open the door.
CONTROL = """
try versuchen person; hope hoffen person; promise versprechen/verspricht/versprochen person
plan planen person; forget/forgot/forgotten vergessen/vergisst/vergessen person =
begin/began/begun an+fangen/fängt/gefangen person; decide beschließen//beschlossen person =
refuse sich_weigern person
"""
HAVE = "have/had haben/hat/gehabt person:goods,idea ="
BE = "be/was/been sein/ist/gewesen* being:place ="
COST = "cost/cost kosten//gekostet goods ="
LIVE = "live leben person ="

NAMES = """Anna Peter Maria Paul Julia Martin Clara David Sophie Simon Emma Robert Laura Daniel Lena
Stefan Nina Jakob Eva Oskar Lisa Otto Helena Ben"""
CITIES = """Berlin Hamburg Munich/München Vienna/Wien Cologne/Köln Zurich/Zürich Paris London Rome/Rom
Prague/Prag Warsaw/Warschau Brussels/Brüssel Geneva/Genf Milan/Mailand Lisbon/Lissabon
Athens/Athen Venice/Venedig Dresden Leipzig Frankfurt"""
COUNTRIES = """Germany/Deutschland France/Frankreich Italy/Italien Spain/Spanien Austria/Österreich Poland/Polen
Sweden/Schweden England Norway/Norwegen Greece/Griechenland Denmark/Dänemark Portugal Japan
Canada/Kanada"""
MONTHS = """January/Januar February/Februar March/März April May/Mai June/Juni July/Juli August September
October/Oktober November December/Dezember"""
WEEKDAYS = """Monday/Montag Tuesday/Dienstag Wednesday/Mittwoch Thursday/Donnerstag Friday/Freitag
Saturday/Samstag Sunday/Sonntag"""
SEASONS = "spring/Frühling summer/Sommer autumn/Herbst winter/Winter"

# english|german|when: any, past, future, habit; mid: stands before the English verb.
ADVERBS = """
today|heute|any; yesterday|gestern|past; tomorrow|morgen|future; in the morning|am Morgen|any
in the evening|am Abend|any; in the afternoon|am Nachmittag|any; at night|in der Nacht|any
last week|letzte Woche|past; next week|nächste Woche|future; last year|letztes Jahr|past
next year|nächstes Jahr|future; every day|jeden Tag|habit; every morning|jeden Morgen|habit
every evening|jeden Abend|habit; on the weekend|am Wochenende|any; soon|bald|future
this morning|heute Morgen|past; this evening|heute Abend|future; two days ago|vor zwei Tagen|past
a week ago|vor einer Woche|past; a year ago|vor einem Jahr|past; three weeks ago|vor drei Wochen|past
in three days|in drei Tagen|future; in two weeks|in zwei Wochen|future; in a month|in einem Monat|future
after breakfast|nach dem Frühstück|any; before dinner|vor dem Abendessen|any; after work|nach der Arbeit|any
at noon|am Mittag|any; at midnight|um Mitternacht|any; yesterday evening|gestern Abend|past
during the holidays|in den Ferien|any; often|oft|mid; always|immer|mid; sometimes|manchmal|mid
rarely|selten|mid; usually|meistens|mid; never|nie|mid
"""
MANNER = "slowly/langsam quickly/schnell loudly/laut quietly/leise well/gut badly/schlecht carefully/vorsichtig"
