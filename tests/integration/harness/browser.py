"""Opens a page in a headless browser and runs a script there: browser.py CHROMIUM PAGE SCRIPT WIDTH SCHEME MEDIA [PICTURE].

Prints what the script's promise resolves to, errors and warnings of the console, and every request but that for the page itself. MEDIA is
`screen` or `print`. A picture is a PNG, or, where its name ends so, a PDF for paper."""
import base64, json, os, subprocess, sys, tempfile, time
import websocket

chromium, page, script, width, scheme, media = sys.argv[1:7]
HEIGHT = 1400


class Tab:
    def __init__(self, address):
        self.socket = websocket.create_connection(address, timeout=60, suppress_origin=True)
        self.number, self.events, self.session = 0, [], None

    def ask(self, method, **parameters):
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': parameters}
        if self.session:
            message['sessionId'] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get('id') == self.number:
                assert 'error' not in answer, (method, answer['error'])
                return answer['result']
            self.events.append(answer)

    def seen(self, method):
        return [event['params'] for event in self.events if event.get('method') == method]


def address(profile, process):
    for _ in range(300):
        port = os.path.join(profile, 'DevToolsActivePort')
        if os.path.exists(port) and len(open(port).read().splitlines()) == 2:
            number, path = open(port).read().splitlines()
            return f'ws://127.0.0.1:{number}{path}'
        assert process.poll() is None, 'the browser ended'
        time.sleep(0.1)
    raise AssertionError('the browser does not answer')


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
    options = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run', '--disable-background-networking',
               '--remote-debugging-port=0', f'--user-data-dir={profile}', 'about:blank']
    process = subprocess.Popen([chromium, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        tab = Tab(address(profile, process))
        target = tab.ask('Target.createTarget', url='about:blank')['targetId']
        tab.session = tab.ask('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            tab.ask(f'{domain}.enable')
        tab.ask('Emulation.setDeviceMetricsOverride', width=int(width), height=HEIGHT, deviceScaleFactor=1, mobile=False)
        tab.ask('Emulation.setEmulatedMedia', media='print' if media == 'print' else '', features=[{'name': 'prefers-color-scheme', 'value': scheme}])
        url = 'file://' + os.path.abspath(page)
        tab.ask('Page.navigate', url=url)
        for _ in range(600):
            if tab.ask('Runtime.evaluate', expression='document.readyState')['result']['value'] == 'complete' and tab.seen('Page.loadEventFired'):
                break
            time.sleep(0.05)
        answer = tab.ask('Runtime.evaluate', expression=script, awaitPromise=True, returnByValue=True)
        picture = sys.argv[7] if len(sys.argv) > 7 else ''
        if picture.endswith('.pdf'):
            paper = tab.ask('Page.printToPDF', printBackground=True, paperWidth=8.27, paperHeight=11.69)
            open(picture, 'wb').write(base64.b64decode(paper['data']))
        elif picture:
            size = tab.ask('Page.getLayoutMetrics')['cssContentSize']
            clip = {'x': 0, 'y': 0, 'width': int(width), 'height': min(size['height'], 9000), 'scale': 1}
            shot = tab.ask('Page.captureScreenshot', captureBeyondViewport=True, clip=clip)
            open(picture, 'wb').write(base64.b64decode(shot['data']))
        errors = [e['exceptionDetails'].get('exception', {}).get('description') or e['exceptionDetails']['text'] for e in tab.seen('Runtime.exceptionThrown')]
        errors += [str(e['args']) for e in tab.seen('Runtime.consoleAPICalled') if e['type'] in ('error', 'warning', 'assert')]
        errors += [e['entry']['text'] for e in tab.seen('Log.entryAdded') if e['entry']['level'] in ('error', 'warning')]
        if 'exceptionDetails' in answer:
            errors.append(answer['exceptionDetails'].get('exception', {}).get('description', 'the script failed'))
        requests = [e['request']['url'] for e in tab.seen('Network.requestWillBeSent') if e['request']['url'] != url]
        print(json.dumps({'result': answer['result'].get('value'), 'errors': errors, 'requests': requests}))
    finally:
        process.kill()
        process.wait()
