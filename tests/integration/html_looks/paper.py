"""What a PDF looks like: the share of dark pixels of each page, and its text."""
import json, sys
import pypdfium2
document = pypdfium2.PdfDocument(sys.argv[1])
dark, text = [], ''
for page in document:
    text += page.get_textpage().get_text_range()
    shown = page.render(scale=1, grayscale=True)
    grey = bytes(shown.buffer)
    dark.append(sum(pixel < 64 for pixel in grey) / len(grey))
print(json.dumps({'dark': dark, 'text': text}))
