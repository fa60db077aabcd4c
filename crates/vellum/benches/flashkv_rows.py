"""Claims of an experiment at the larger scale as rows of docs/results: flashkv_rows.py FIGURE OUTCOME RESULT"""

import datetime
import json
import sys

figure, outcome, result = sys.argv[1:]
with open(outcome) as file:
    checks = json.load(file)["checks"]
today = datetime.date.today().isoformat()
rows = [
    {
        "claim": f"flashkv-{figure}, 200,000 records: {check['claim']}",
        "command": f"vellum lab run flashkv-{figure} --scale paper",
        "holds": check["holds"],
        "ours": check["ours"],
        "target": check["paper"],
        "why": f"{check['why']} (run on {today})",
    }
    for check in checks
]
for row in rows:
    print(f"{'holds ' if row['holds'] else 'MISSED'} {row['claim']}: {row['ours']}")
with open(result, "w") as file:
    json.dump(rows, file, indent=1)
    file.write("\n")
