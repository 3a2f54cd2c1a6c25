// Asks a server through Java's own HttpClient: java Ask.java URL RECORDING. It offers HTTP/2 with every request.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

class Ask {
    static final String BOUNDARY = "boundary-of-a-form";
    static final HttpClient client = HttpClient.newHttpClient();

    static HttpRequest.Builder to(String url) {
        return HttpRequest.newBuilder(URI.create(url));
    }

    static HttpRequest form(String url, Path recording, String... fields) throws Exception {
        StringBuilder head = new StringBuilder();
        for (String field : fields) {
            String[] pair = field.split("=", 2);
            head.append("--" + BOUNDARY + "\r\nContent-Disposition: form-data; name=\"" + pair[0] + "\"\r\n\r\n" + pair[1] + "\r\n");
        }
        head.append("--" + BOUNDARY + "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"speech.wav\"\r\n\r\n");
        HttpRequest.BodyPublisher body = BodyPublishers.concat(
            BodyPublishers.ofString(head.toString()),
            BodyPublishers.ofFile(recording),
            BodyPublishers.ofString("\r\n--" + BOUNDARY + "--\r\n"));
        return to(url).header("Content-Type", "multipart/form-data; boundary=" + BOUNDARY).POST(body).build();
    }

    static void show(String name, HttpRequest request) throws Exception {
        var answer = client.send(request, BodyHandlers.ofString());
        System.out.println(name + "\t" + answer.statusCode() + "\t" + answer.version() + "\t" + answer.body().strip().replace("\n", "\\n"));
    }

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0] + "/audio/transcriptions";
        Path recording = Path.of(arguments[1]);
        show("json", form(url, recording, "model=whisper-1"));
        show("options", form(url, recording, "model=whisper-1", "response_format=text", "language=en"));
        show("raw", to(url + "?response_format=text").header("Content-Type", "audio/wav").POST(BodyPublishers.ofFile(recording)).build());
        show("unknown", form(url, recording, "model=gpt-5"));
        show("empty", to(url).POST(BodyPublishers.noBody()).build());
        show("models", to(arguments[0] + "/models").build());

        var lines = client.send(form(url, recording, "model=whisper-1", "stream=true"), BodyHandlers.ofLines());
        String events = lines.body().filter(line -> line.startsWith("data: ")).collect(Collectors.joining("\\n"));
        System.out.println("stream\t" + lines.statusCode() + "\t" + lines.version() + "\t" + events);

        HttpRequest again = form(url, recording, "model=whisper-1", "response_format=text");
        List<CompletableFuture<String>> waiting = IntStream.range(0, 50)
            .mapToObj(number -> client.sendAsync(again, BodyHandlers.ofString()).thenApply(answer -> answer.statusCode() + " " + answer.body().strip()))
            .toList();
        for (String answer : waiting.stream().map(CompletableFuture::join).collect(Collectors.toSet())) {
            System.out.println("many\t" + answer);
        }
    }
}
