#include "text/generated/lexicon.h"

#include "fovea/core/error.h"

namespace fovea::text::generated {
namespace {

constexpr Gender m = Gender::masculine, f = Gender::feminine;
constexpr NounClass who = NounClass::animate, thing = NounClass::thing, place = NounClass::place,
                    paper = NounClass::document;

constexpr Noun kNouns[] = {
    {"man", "men", "homme", "hommes", m, who},
    {"woman", "women", "femme", "femmes", f, who},
    {"child", "children", "enfant", "enfants", m, who},
    {"boy", "boys", "garçon", "garçons", m, who},
    {"girl", "girls", "fille", "filles", f, who},
    {"teacher", "teachers", "professeur", "professeurs", m, who},
    {"doctor", "doctors", "médecin", "médecins", m, who},
    {"student", "students", "étudiant", "étudiants", m, who},
    {"neighbour", "neighbours", "voisin", "voisins", m, who},
    {"artist", "artists", "artiste", "artistes", m, who},
    {"sailor", "sailors", "marin", "marins", m, who},
    {"queen", "queens", "reine", "reines", f, who},
    {"cat", "cats", "chat", "chats", m, who},
    {"dog", "dogs", "chien", "chiens", m, who},
    {"horse", "horses", "cheval", "chevaux", m, who},
    {"bird", "birds", "oiseau", "oiseaux", m, who},
    {"mouse", "mice", "souris", "souris", f, who},
    {"cow", "cows", "vache", "vaches", f, who},
    {"car", "cars", "voiture", "voitures", f, thing},
    {"book", "books", "livre", "livres", m, thing},
    {"table", "tables", "table", "tables", f, thing},
    {"chair", "chairs", "chaise", "chaises", f, thing},
    {"tree", "trees", "arbre", "arbres", m, thing},
    {"flower", "flowers", "fleur", "fleurs", f, thing},
    {"apple", "apples", "pomme", "pommes", f, thing},
    {"key", "keys", "clé", "clés", f, thing},
    {"hat", "hats", "chapeau", "chapeaux", m, thing},
    {"boat", "boats", "bateau", "bateaux", m, thing},
    {"bottle", "bottles", "bouteille", "bouteilles", f, thing},
    {"picture", "pictures", "image", "images", f, thing},
    {"stone", "stones", "pierre", "pierres", f, thing},
    {"knife", "knives", "couteau", "couteaux", m, thing},
    {"box", "boxes", "boîte", "boîtes", f, thing},
    {"coat", "coats", "manteau", "manteaux", m, thing},
    {"bag", "bags", "sac", "sacs", m, thing},
    {"clock", "clocks", "horloge", "horloges", f, thing},
    {"mat", "mats", "tapis", "tapis", m, thing},
    {"bed", "beds", "lit", "lits", m, thing},
    {"house", "houses", "maison", "maisons", f, place},
    {"garden", "gardens", "jardin", "jardins", m, place},
    {"kitchen", "kitchens", "cuisine", "cuisines", f, place},
    {"street", "streets", "rue", "rues", f, place},
    {"city", "cities", "ville", "villes", f, place},
    {"forest", "forests", "forêt", "forêts", f, place},
    {"school", "schools", "école", "écoles", f, place},
    {"church", "churches", "église", "églises", f, place},
    {"station", "stations", "gare", "gares", f, place},
    {"museum", "museums", "musée", "musées", m, place},
    {"hotel", "hotels", "hôtel", "hôtels", m, place},
    {"hospital", "hospitals", "hôpital", "hôpitaux", m, place},
    {"office", "offices", "bureau", "bureaux", m, place},
    {"agreement", "agreements", "accord", "accords", m, paper},
    {"treaty", "treaties", "traité", "traités", m, paper},
    {"law", "laws", "loi", "lois", f, paper},
    {"contract", "contracts", "contrat", "contrats", m, paper},
    {"report", "reports", "rapport", "rapports", m, paper},
    {"letter", "letters", "lettre", "lettres", f, paper},
};

constexpr unsigned kWho = mask_of(who), kThing = mask_of(thing), kPlace = mask_of(place),
                   kPaper = mask_of(paper);

constexpr Adjective kAdjectives[] = {
    {"small", {"petit", "petite", "petits", "petites"}, {}, true, kWho | kThing | kPlace},
    {"big", {"grand", "grande", "grands", "grandes"}, {}, true, kWho | kThing | kPlace},
    {"old", {"vieux", "vieille", "vieux", "vieilles"}, "vieil", true, kWho | kThing | kPlace | kPaper},
    {"young", {"jeune", "jeune", "jeunes", "jeunes"}, {}, true, kWho},
    {"beautiful", {"beau", "belle", "beaux", "belles"}, "bel", true, kWho | kThing | kPlace},
    {"new", {"nouveau", "nouvelle", "nouveaux", "nouvelles"}, "nouvel", true, kThing | kPlace | kPaper},
    {"red", {"rouge", "rouge", "rouges", "rouges"}, {}, false, kThing},
    {"blue", {"bleu", "bleue", "bleus", "bleues"}, {}, false, kThing},
    {"green", {"vert", "verte", "verts", "vertes"}, {}, false, kThing},
    {"black", {"noir", "noire", "noirs", "noires"}, {}, false, kThing},
    {"white", {"blanc", "blanche", "blancs", "blanches"}, {}, false, kThing},
    {"yellow", {"jaune", "jaune", "jaunes", "jaunes"}, {}, false, kThing},
    {"heavy", {"lourd", "lourde", "lourds", "lourdes"}, {}, false, kThing},
    {"expensive", {"cher", "chère", "chers", "chères"}, {}, false, kThing},
    {"strange", {"étrange", "étrange", "étranges", "étranges"}, {}, false, kWho | kThing | kPlace | kPaper},
    {"empty", {"vide", "vide", "vides", "vides"}, {}, false, kPlace},
    {"quiet", {"calme", "calme", "calmes", "calmes"}, {}, false, kWho | kPlace},
    {"famous", {"célèbre", "célèbre", "célèbres", "célèbres"}, {}, false, kWho | kPlace | kPaper},
    {"dangerous", {"dangereux", "dangereuse", "dangereux", "dangereuses"}, {}, false, kWho | kPlace},
    {"important", {"important", "importante", "importants", "importantes"}, {}, false, kPaper},
    {"secret", {"secret", "secrète", "secrets", "secrètes"}, {}, false, kPaper},
    {"happy", {"heureux", "heureuse", "heureux", "heureuses"}, {}, false, kWho},
    {"tired", {"fatigué", "fatiguée", "fatigués", "fatiguées"}, {}, false, kWho},
    {"clever", {"intelligent", "intelligente", "intelligents", "intelligentes"}, {}, false, kWho},
    {"sad", {"triste", "triste", "tristes", "tristes"}, {}, false, kWho},
};

constexpr Verb kTransitive[] = {
    {"see", "sees", "saw", "voir", {"vois", "voit", "voyons", "voyez", "voient"}, "vu"},
    {"love", "loves", "loved", "aimer", {"aime", "aime", "aimons", "aimez", "aiment"}, "aimé"},
    {"find", "finds", "found", "trouver", {"trouve", "trouve", "trouvons", "trouvez", "trouvent"}, "trouvé"},
    {"watch",
     "watches",
     "watched",
     "regarder",
     {"regarde", "regarde", "regardons", "regardez", "regardent"},
     "regardé"},
    {"follow", "follows", "followed", "suivre", {"suis", "suit", "suivons", "suivez", "suivent"}, "suivi"},
    {"carry", "carries", "carried", "porter", {"porte", "porte", "portons", "portez", "portent"}, "porté"},
    {"paint", "paints", "painted", "peindre", {"peins", "peint", "peignons", "peignez", "peignent"}, "peint"},
    {"hide", "hides", "hid", "cacher", {"cache", "cache", "cachons", "cachez", "cachent"}, "caché"},
    {"choose",
     "chooses",
     "chose",
     "choisir",
     {"choisis", "choisit", "choisissons", "choisissez", "choisissent"},
     "choisi"},
    {"forget",
     "forgets",
     "forgot",
     "oublier",
     {"oublie", "oublie", "oublions", "oubliez", "oublient"},
     "oublié"},
    {"take", "takes", "took", "prendre", {"prends", "prend", "prenons", "prenez", "prennent"}, "pris"},
    {"hear",
     "hears",
     "heard",
     "entendre",
     {"entends", "entend", "entendons", "entendez", "entendent"},
     "entendu"},
    {"describe",
     "describes",
     "described",
     "décrire",
     {"décris", "décrit", "décrivons", "décrivez", "décrivent"},
     "décrit"},
};

constexpr Verb kIntransitive[] = {
    {"sleep", "sleeps", "slept", "dormir", {"dors", "dort", "dormons", "dormez", "dorment"}, "dormi"},
    {"work",
     "works",
     "worked",
     "travailler",
     {"travaille", "travaille", "travaillons", "travaillez", "travaillent"},
     "travaillé"},
    {"sing", "sings", "sang", "chanter", {"chante", "chante", "chantons", "chantez", "chantent"}, "chanté"},
    {"dance", "dances", "danced", "danser", {"danse", "danse", "dansons", "dansez", "dansent"}, "dansé"},
    {"wait",
     "waits",
     "waited",
     "attendre",
     {"attends", "attend", "attendons", "attendez", "attendent"},
     "attendu"},
    {"smile",
     "smiles",
     "smiled",
     "sourire",
     {"souris", "sourit", "sourions", "souriez", "sourient"},
     "souri"},
    {"fall",
     "falls",
     "fell",
     "tomber",
     {"tombe", "tombe", "tombons", "tombez", "tombent"},
     "tombé",
     Auxiliary::etre},
    {"arrive",
     "arrives",
     "arrived",
     "arriver",
     {"arrive", "arrive", "arrivons", "arrivez", "arrivent"},
     "arrivé",
     Auxiliary::etre},
};

constexpr Verb kSitting{"sit", "sits", "sat", "être assis", {}, "assis", Auxiliary::seated};

constexpr Verb kGiving[] = {
    {"give", "gives", "gave", "donner", {"donne", "donne", "donnons", "donnez", "donnent"}, "donné"},
    {"show", "shows", "showed", "montrer", {"montre", "montre", "montrons", "montrez", "montrent"}, "montré"},
    {"sell", "sells", "sold", "vendre", {"vends", "vend", "vendons", "vendez", "vendent"}, "vendu"},
};

constexpr Verb kAttitude[] = {
    {"say", "says", "said", "dire", {"dis", "dit", "disons", "dites", "disent"}, "dit"},
    {"think", "thinks", "thought", "penser", {"pense", "pense", "pensons", "pensez", "pensent"}, "pensé"},
    {"believe", "believes", "believed", "croire", {"crois", "croit", "croyons", "croyez", "croient"}, "cru"},
};

constexpr Verb kModal[] = {
    {"can", "can", {}, "pouvoir", {"peux", "peut", "pouvons", "pouvez", "peuvent"}, {}},
    {"must", "must", {}, "devoir", {"dois", "doit", "devons", "devez", "doivent"}, {}},
    {"want to", "wants to", {}, "vouloir", {"veux", "veut", "voulons", "voulez", "veulent"}, {}},
};

constexpr WordPair kPassive[] = {{"signed", "signé"},
                                 {"rejected", "rejeté"},
                                 {"published", "publié"},
                                 {"discussed", "discuté"},
                                 {"approved", "approuvé"}};

constexpr Preposition kPrepositions[] = {
    {"on", "sur", kThing},
    {"in", "dans", kPlace},
    {"under", "sous", kThing},
    {"behind", "derrière", kThing | kPlace | kWho},
    {"near", "près de", kThing | kPlace | kWho},
    {"in front of", "devant", kThing | kPlace | kWho},
    {"next to", "à côté de", kThing | kPlace | kWho},
    {"with", "avec", kWho},
};

constexpr WordPair kAdverbs[] = {
    {"often", "souvent"}, {"always", "toujours"}, {"sometimes", "parfois"}, {"rarely", "rarement"}};

constexpr WordPair kMonths[] = {{"January", "janvier"}, {"February", "février"},  {"March", "mars"},
                                {"April", "avril"},     {"May", "mai"},           {"June", "juin"},
                                {"July", "juillet"},    {"August", "août"},       {"September", "septembre"},
                                {"October", "octobre"}, {"November", "novembre"}, {"December", "décembre"}};

constexpr WordPair kWeekdays[] = {{"Monday", "lundi"},
                                  {"Tuesday", "mardi"},
                                  {"Wednesday", "mercredi"},
                                  {"Friday", "vendredi"},
                                  {"Sunday", "dimanche"}};

constexpr InstitutionAdjective kRegional[] = {{"European", "européen", "européenne"},
                                              {"American", "américain", "américaine"},
                                              {"African", "africain", "africaine"},
                                              {"International", "international", "internationale"}};
constexpr InstitutionAdjective kSubject[] = {{"Economic", "économique", "économique"},
                                             {"Monetary", "monétaire", "monétaire"},
                                             {"Social", "social", "sociale"},
                                             {"Military", "militaire", "militaire"}};
constexpr InstitutionNoun kInstitutions[] = {
    {"Area", "zone", f},       {"Union", "union", f},          {"Market", "marché", m},
    {"Council", "conseil", m}, {"Community", "communauté", f}, {"Fund", "fonds", m}};

template <typename Entry>
const Entry& find(std::span<const Entry> entries, std::string_view english) {
  for (const Entry& entry : entries) {
    if (entry.english == english) return entry;
  }
  throw InvalidArgument("lexicon", "english", "a word of the lexicon", std::string(english));
}

}  // namespace

std::span<const Noun> nouns() {
  return kNouns;
}
std::span<const Adjective> adjectives() {
  return kAdjectives;
}
std::span<const Verb> transitive_verbs() {
  return kTransitive;
}
std::span<const Verb> intransitive_verbs() {
  return kIntransitive;
}
std::span<const Verb> giving_verbs() {
  return kGiving;
}
std::span<const Verb> attitude_verbs() {
  return kAttitude;
}
std::span<const Verb> modal_verbs() {
  return kModal;
}
std::span<const WordPair> passive_verbs() {
  return kPassive;
}
const Verb& sitting_verb() {
  return kSitting;
}
std::span<const Preposition> prepositions() {
  return kPrepositions;
}
std::span<const WordPair> adverbs() {
  return kAdverbs;
}
std::span<const WordPair> months() {
  return kMonths;
}
std::span<const WordPair> weekdays() {
  return kWeekdays;
}
std::span<const InstitutionAdjective> regional_adjectives() {
  return kRegional;
}
std::span<const InstitutionAdjective> subject_adjectives() {
  return kSubject;
}
std::span<const InstitutionNoun> institution_nouns() {
  return kInstitutions;
}

const Noun& noun(std::string_view english) {
  return find(nouns(), english);
}
const InstitutionAdjective& institution_adjective(std::string_view english) {
  for (const InstitutionAdjective& entry : regional_adjectives()) {
    if (entry.english == english) return entry;
  }
  return find(subject_adjectives(), english);
}
const InstitutionNoun& institution_noun(std::string_view english) {
  return find(institution_nouns(), english);
}

}  // namespace fovea::text::generated
