"""Style sheet of a report: light, dark, narrow and print layouts, without external resources.

Text colours have a contrast ratio of at least 4.5 : 1 with their backgrounds in both schemes.
"""

# Colours by role. s0 to s5 are series of plots; positive and negative are signs in maps and matrices: red is positive,
# as in programs of the field.
LIGHT = {
    "page": "#ffffff",
    "panel": "#f3f6f8",
    "ink": "#1b1f24",
    "muted": "#525c66",
    "rule": "#d3dae0",
    "accent": "#0a6486",
    "warm": "#a8420b",
    "positive": "#b2182b",
    "negative": "#2166ac",
    "alert": "#fdf1e7",
    "head": "#dfe5ea",
    "s0": "#0a6486",
    "s1": "#a8420b",
    "s2": "#5b3f9e",
    "s3": "#3a6b1f",
    "s4": "#9c2559",
    "s5": "#665500",
}
DARK = {
    "page": "#14181d",
    "panel": "#1d242b",
    "ink": "#e8ebee",
    "muted": "#a9b4be",
    "rule": "#3a444e",
    "accent": "#74c4e8",
    "warm": "#f2a56f",
    "positive": "#ff8a7a",
    "negative": "#7ab8ff",
    "alert": "#33261c",
    "head": "#39434d",
    "s0": "#74c4e8",
    "s1": "#f2a56f",
    "s2": "#bda5f5",
    "s3": "#9fd27d",
    "s4": "#f393bd",
    "s5": "#d9c45a",
}
TEXT = ("ink", "muted", "accent", "warm")  # colours of text
GROUND = ("page", "panel", "alert")  # backgrounds of text

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header,nav,main,footer{max-width:56rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .4rem;overflow-wrap:anywhere}
h2{font-size:1.35rem;margin:2.4rem 0 .8rem;padding-top:.9rem;border-top:1px solid var(--rule)}
h3{font-size:1.05rem;margin:1.6rem 0 .5rem}
p{margin:.5rem 0;max-width:44rem;overflow-wrap:anywhere}
ul{margin:.5rem 0;padding-left:1.3rem;max-width:44rem}
li{margin:.3rem 0;overflow-wrap:anywhere}
a{color:var(--accent)}
a:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.kind{color:var(--muted);margin:0 0 .6rem}
.summary{font-size:1.12rem}
.skip{position:absolute;left:-999rem}
.skip:focus{left:1rem;top:.5rem;background:var(--page);padding:.4rem .8rem;z-index:1}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;list-style:none;padding:.6rem 0;margin:1rem 0 0;max-width:none;
border-top:1px solid var(--rule)}
nav li{margin:0}
nav a{display:inline-block;padding:.25rem 0}
.promise{background:var(--panel);border-left:4px solid var(--accent);padding:.7rem 1.1rem;margin:1rem 0;
font-size:1.08rem}
.warning{background:var(--alert);border-left:4px solid var(--warm);padding:.7rem 1.1rem;margin:1rem 0}
figure{margin:1.2rem 0;break-inside:avoid}
figcaption{font-weight:600;margin-bottom:.35rem;overflow-wrap:anywhere}
.about{font-weight:400;color:var(--muted);display:block;font-size:.92rem}
.side{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:0 1.6rem}
.side figure{margin:.7rem 0}
svg{display:block;width:100%;max-width:33rem;height:auto;overflow:visible;font:12px system-ui,-apple-system,"Segoe UI",
Roboto,sans-serif}
svg.small{max-width:20.5rem}svg.wide{max-width:46.2rem}
svg text{font-variant-numeric:tabular-nums}
svg path{stroke-linejoin:round}
svg .tick{font-size:11px}
.scroll{overflow-x:auto;max-width:100%;background:linear-gradient(90deg,var(--page) 50%,transparent) 0 0/2.4rem 100%
no-repeat local,linear-gradient(270deg,var(--page) 50%,transparent) 100% 0/2.4rem 100% no-repeat local,
linear-gradient(90deg,var(--rule),transparent) 0 0/.7rem 100% no-repeat scroll,
linear-gradient(270deg,var(--rule),transparent) 100% 0/.7rem 100% no-repeat scroll}
table{border-collapse:collapse;font-size:.94rem;margin:0 0 1rem;font-variant-numeric:tabular-nums}
.title{font-weight:600;margin:1rem 0 .2rem}
th,td{padding:.3rem .9rem .3rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
.long{overflow-wrap:anywhere;min-width:14rem}
thead th{color:var(--muted);font-weight:600;border-bottom:2px solid var(--rule)}
tbody th{font-weight:500;overflow-wrap:break-word;max-width:20rem}
.number{text-align:right}
.number,.short,.whole{white-space:nowrap}
thead .number{white-space:normal}
details{margin:.4rem 0 1rem}
summary{cursor:pointer;color:var(--accent);padding:.25rem 0}
code{font:.86em ui-monospace,Menlo,Consolas,monospace;overflow-wrap:anywhere}
footer{color:var(--muted);font-size:.92rem;margin-top:3rem;padding-top:1rem;padding-bottom:3rem;
border-top:1px solid var(--rule)}
@media(max-width:32rem){header{padding-top:1.2rem}h1{font-size:1.5rem}h2{font-size:1.2rem}
header,nav,main,footer{padding-left:1rem;padding-right:1rem}
table{font-size:.88rem}th,td{padding-right:.5rem}.short{white-space:normal}.long{min-width:9rem}
svg{font-size:13px}svg .tick{font-size:12px}svg.small,svg.small .tick{font-size:12px}}
@media print{body{font-size:10.5pt}nav,.skip{display:none}
header,main,footer{max-width:none;padding-left:0;padding-right:0}
h2,h3,.title,figcaption{break-after:avoid}table,figure{break-inside:avoid}svg{max-width:14cm}svg.wide{max-width:100%}
details::details-content{content-visibility:visible;height:auto}summary{list-style:none;color:var(--muted)}
.brief{font-size:9.2pt;line-height:1.4}.brief header{padding-top:0}.brief h1{font-size:1.5rem}
.brief h2{font-size:1.15rem;margin:.9rem 0 .3rem;padding-top:.4rem}.brief footer{margin-top:.8rem;padding:.3rem 0 0}
.brief th,.brief td{padding-top:.15rem;padding-bottom:.15rem}
.promise,.warning,svg{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""


def _scheme(colours: dict[str, str]) -> str:
    """CSS variables of a colour scheme."""
    return "".join(f"--{name}:{value};" for name, value in colours.items())


# Charts have the light colours in their style attributes. On a dark screen these rules replace them.
DARK_RULES = "".join(
    f'[style*="{kind}: {LIGHT[name]}"]{{{kind}:{DARK[name]}!important}}'
    for name in LIGHT
    for kind in ("fill", "stroke")
)

# The dark scheme applies on screens only; printed pages are light.
CSS = (
    f":root{{color-scheme:light dark;{_scheme(LIGHT)}}}\n"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_scheme(DARK)}}}{DARK_RULES}}}\n"
    f"{_RULES.strip()}\n"
)
