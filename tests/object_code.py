"""Loops of an object file, by objdump: who reads them can count what a compiler made of a kernel."""
import re
import subprocess

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s+([0-9a-f]+):\s+(.*)$")
# x86 writes the target of a jump as its last operand, ARM too: an address and the name of the function.
JUMP = re.compile(r"^(?:j[a-z]+|b(?:\.[a-z]+)?|cbn?z|tbn?z)\s+(?:.*,\s*)?(?:0x)?([0-9a-f]+) <")


class Loop:
    def __init__(self, function, instructions):
        self.function, self.instructions = function, instructions

    def count(self, pattern):
        return sum(1 for text in self.instructions if re.search(pattern, text))

    def __len__(self):
        return len(self.instructions)


def functions(objdump, path):
    """{name: [(address, instruction)]}, names demangled."""
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    found, body = {}, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            # .cold and .isra parts are functions of their own
            body = found.setdefault(match[1].replace("qf::kernel::", "").replace("(anonymous namespace)::", ""), [])
        elif body is not None and (match := INSTRUCTION.match(line)):
            body.append((int(match[1], 16), re.split(r"\s+(?:# |// )", match[2])[0].strip()))
    return found


def innermost_loops(functions):
    """Backward jumps that no other lies in, longest first in a function."""
    for name, body in functions.items():
        addresses = {address: i for i, (address, _) in enumerate(body)}
        spans = []
        for i, (address, text) in enumerate(body):
            match = JUMP.match(text)
            if match and int(match[1], 16) <= address and int(match[1], 16) in addresses:
                spans.append((addresses[int(match[1], 16)], i))
        for first, last in spans:
            if not any((a, b) != (first, last) and first <= a and b <= last for a, b in spans):
                yield Loop(name, [text for _, text in body[first:last + 1]])
