"""Grafana panels, a dashboard of rows of them, in the few shapes that allot's dashboards use.

A panel is a dict of Grafana's own JSON. Its position and id come from its place in the dashboard:
nobody counts columns.
"""
import re

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
HISTOGRAM_PART = re.compile(r"_(bucket|sum|count)$")


def query(expr, legend="", instant=False, table=False):
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": " ".join(expr.split()),
        "format": "table" if table else "time_series",
        "instant": instant or table,
        "range": not (instant or table),
        "legendFormat": legend or "__auto",
    }


def panel(kind, title, text, queries, unit="short", custom=None, options=None, transformations=(),
          overrides=(), **defaults):
    """`text` is one sentence; the names of the metrics are put behind it. `defaults`: min, max,
    decimals, noValue, thresholds, displayName, mappings of the fields."""
    queries = [dict(q, refId="ABCDEFGH"[i]) for i, q in enumerate(queries)]
    names = re.findall(r"\ballot_\w+", " ".join(q["expr"] for q in queries))
    names = dict.fromkeys(HISTOGRAM_PART.sub("", name) for name in names)
    metrics = ", ".join(f"`{name}`" for name in names)
    return {
        "type": kind,
        "title": title,
        "description": f"{text} Metric{'s' if len(names) > 1 else ''}: {metrics}.",
        "datasource": DATASOURCE,
        "targets": queries,
        "fieldConfig": {
            "defaults": {"unit": unit, "custom": custom or {},
                         **{k: v for k, v in defaults.items() if v is not None}},
            "overrides": list(overrides),
        },
        "options": options or {},
        "transformations": [{"id": name, "options": o} for name, o in transformations],
    }


def limits(*steps):
    """limits((None, "green"), (16, "red")): colours from a value on."""
    return {"mode": "absolute", "steps": [{"value": v, "color": c} for v, c in steps]}


def override(matcher, value, **properties):
    """Properties of the fields whose name is `value` (matcher byName) or matches it (byRegexp);
    an underscore stands for a dot: custom_lineWidth."""
    listed = [{"id": k.replace("_", "."), "value": v} for k, v in properties.items()]
    return {"matcher": {"id": matcher, "options": value}, "properties": listed}


def lines(title, text, queries, unit="short", stack=False, limit=None, **defaults):
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 60 if stack else 8,
              "showPoints": "never", "spanNulls": False}
    if stack:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    if limit:
        custom["thresholdsStyle"] = {"mode": "dashed"}
        defaults["thresholds"] = limit
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, text, queries, unit, custom, options, min=0, **defaults)


def stat(title, text, expr, legend, unit="short", name_only=False, **defaults):
    defaults.setdefault("thresholds", limits((None, "text")))
    options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
               "colorMode": "value", "graphMode": "none", "justifyMode": "center",
               "orientation": "auto", "textMode": "name" if name_only else "auto",
               "wideLayout": True}
    queries = [query(expr, legend, instant=True)]
    return panel("stat", title, text, queries, unit, options=options, **defaults)


def bars(title, text, expr, unit, label=None, sort_by=None, legend="", **defaults):
    """Horizontal bars of an instant query: in its own order, named by `legend`; or sorted by the
    number in a label, since answers come in any order, and named by `label` (a displayName
    template)."""
    number = {"conversions": [{"targetField": sort_by, "destinationType": "number"}]}
    steps = [("convertFieldType", number), ("sortBy", {"sort": [{"field": sort_by}]})]
    options = {"displayMode": "basic", "orientation": "horizontal", "valueMode": "text",
               "showUnfilled": True, "minVizHeight": 14, "minVizWidth": 8, "namePlacement": "auto",
               "reduceOptions": {"calcs": ["lastNotNull"], "values": bool(sort_by),
                                 "fields": "/^Value$/" if sort_by else ""}}
    queries = [query(expr, legend, instant=True, table=bool(sort_by))]
    return panel("bargauge", title, text, queries, unit, options=options, displayName=label, min=0,
                 transformations=steps if sort_by else [],
                 color={"mode": "continuous-blues"}, **defaults)


def heatmap(title, text, expr, legend, unit, y_label):
    """A row for each series, whose name is a number; colour is its value."""
    custom = {"scaleDistribution": {"type": "linear"},
              "hideFrom": {"tooltip": False, "viz": False, "legend": False}}
    options = {
        "calculate": False, "cellGap": 0, "cellValues": {"unit": unit},
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5,
                  "reverse": False, "min": 0},
        "filterValues": {"le": 1e-9}, "rowsFrame": {"layout": "unknown", "value": "share"},
        "yAxis": {"axisPlacement": "left", "axisLabel": y_label, "reverse": True, "unit": "none"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
        "exemplars": {"color": "rgba(255,0,255,0.7)"}}
    return panel("heatmap", title, text, [query(expr, legend)], custom=custom, options=options)


def xy(title, text, expr, x, x_label, y_label, x_unit="none", log2=False, overrides=()):
    """One instant table query with a column `x` of text that is a number and a column `series` to
    part it by. (Two queries joined for x and y are a known trouble of Grafana's.)"""
    custom = {"show": "points+lines", "pointSize": {"fixed": 7}, "lineWidth": 2, "fillOpacity": 50,
              "axisPlacement": "auto", "axisLabel": y_label}
    options = {
        "mapping": "auto",
        "series": [{"x": {"matcher": {"id": "byName", "options": x}},
                    "y": {"matcher": {"id": "byType", "options": "number"}}}],
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"}}
    number = {"conversions": [{"targetField": x, "destinationType": "number"}]}
    parts = {"fields": ["series"], "keepFields": False,
             "naming": {"asLabels": False, "append": False, "withNames": False}}
    scale = {"type": "log", "log": 2} if log2 else {"type": "linear"}
    x_axis = override("byRegexp", f"/{x}$/", unit=x_unit, custom_axisLabel=x_label,
                      custom_scaleDistribution=scale)
    return panel("xychart", title, text, [query(expr, table=True)], "percentunit", custom, options,
                 [("convertFieldType", number), ("sortBy", {"sort": [{"field": x}]}),
                  ("partitionByValues", parts)], [x_axis, *overrides], min=0)


def table(title, text, columns, keys, sort_by=()):
    """columns: (name, unit, expr); their rows are merged on the labels in `keys`."""
    letters = "ABCDEFGH"
    value = {f"Value #{letters[i]}": name for i, (name, _, _) in enumerate(columns)}
    order = {name: i for i, name in enumerate([*keys, *value])}
    return panel("table", title, text, [query(expr, table=True) for _, _, expr in columns], custom={
        "align": "auto", "cellOptions": {"type": "auto"}, "filterable": True},
        overrides=[override("byName", name, unit=unit) for name, unit, _ in columns],
        options={"showHeader": True, "cellHeight": "sm",
                 "sortBy": [{"displayName": name, "desc": desc} for name, desc in sort_by]},
        transformations=[("merge", {}), ("organize", {
            "excludeByName": {"Time": True}, "indexByName": order,
            "renameByName": {**value, **{k: k.replace("_", " ") for k in keys}}})])


def row(title, repeat=None):
    made = {"type": "row", "title": title, "collapsed": False, "panels": []}
    return {**made, "repeat": repeat, "repeatDirection": "h"} if repeat else made


def variable(name, label, values, multi=False, sort=1):
    return {"type": "query", "name": name, "label": label, "datasource": DATASOURCE,
            "definition": values, "query": {"query": values, "refId": name}, "refresh": 2,
            # All: also what lacks the label.
            "sort": sort, "regex": "", "multi": multi, "includeAll": multi, "current": {},
            **({"allValue": ".*"} if multi else {}),
            "options": [], "hide": 0}


def dashboard(uid, title, text, variables, rows, annotations=()):
    """rows: (height, [(width, panel), ...]), or a row() on its own. Widths of a row make 24."""
    panels, y = [], 0
    for entry in rows:
        height, cells = (1, [(24, entry)]) if isinstance(entry, dict) else entry
        x = 0
        for width, made in cells:
            place = {"x": x, "y": y, "w": width, "h": height}
            panels.append({"id": len(panels) + 1, "gridPos": place, **made})
            x += width
        if x != 24:
            raise ValueError(f"{uid}: the row at {y} is {x} columns wide")
        y += height
    source = {"type": "datasource", "name": "datasource", "label": "data source",
              "query": "prometheus", "current": {}, "options": [], "refresh": 1, "hide": 0,
              "multi": False, "includeAll": False}
    return {
        "uid": uid, "title": title, "description": text, "tags": ["allot"], "id": None,
        "version": 1, "schemaVersion": 39, "editable": True, "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"}, "refresh": "10s",
        "links": [{"type": "dashboards", "title": "allot", "tags": ["allot"], "asDropdown": False,
                   "includeVars": True, "keepTime": True, "targetBlank": False}],
        "annotations": {"list": list(annotations)},
        "templating": {"list": [source, *variables]},
        "panels": panels,
    }


def annotation(name, expr, title, enabled, color):
    return {"name": name, "datasource": DATASOURCE, "enable": enabled, "hide": False,
            "iconColor": color, "expr": expr, "titleFormat": title, "step": "",
            "useValueForTime": False}
