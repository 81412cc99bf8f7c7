// Clients in Java that fetch one URL again and again on one connection, so many requests at once.
//
//   java Load jdk|okhttp|ahc URL --bytes N --window N --at-once N --warm-up-ms N --measure-ms N
//
// Prints the requests a second, and how many microseconds the middle one took. Any certificate is accepted.
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;
import okhttp3.OkHttpClient;
import okhttp3.Protocol;
import okhttp3.Request;
import okhttp3.Response;
import org.asynchttpclient.AsyncHttpClient;
import org.asynchttpclient.Dsl;

public class Load {
    /** Fetches the URL once and tells how many bytes came. */
    private interface Fetcher {
        long fetch(String url) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Integer> options = new HashMap<>();
        for (int i = 2; i + 1 < args.length; i += 2) {
            options.put(args[i], Integer.parseInt(args[i + 1]));
        }
        String url = args[1];
        int window = options.get("--window");
        Fetcher fetcher = switch (args[0]) {
            case "jdk" -> jdk(window);
            case "okhttp" -> okhttp();
            case "ahc" -> ahc(window);
            default -> throw new IllegalArgumentException(args[0]);
        };
        // One connection before all others: the first request opens it.
        fetcher.fetch(url);

        long from = System.nanoTime() + Duration.ofMillis(options.get("--warm-up-ms")).toNanos();
        long until = from + Duration.ofMillis(options.get("--measure-ms")).toNanos();
        int atOnce = options.get("--at-once");
        int bytes = options.get("--bytes");
        ExecutorService threads = Executors.newFixedThreadPool(atOnce);
        List<Future<List<Long>>> all = new ArrayList<>();
        for (int i = 0; i < atOnce; i++) {
            all.add(threads.submit(() -> fetchBetween(fetcher, url, bytes, from, until)));
        }
        List<Long> nanos = new ArrayList<>();
        for (Future<List<Long>> one : all) {
            nanos.addAll(one.get());
        }
        nanos.sort(null);
        double seconds = options.get("--measure-ms") / 1000.0;
        System.out.printf(Locale.ROOT, "%.1f %d%n", nanos.size() / seconds, nanos.get(nanos.size() / 2) / 1000);
        // The clients' own threads would keep the process.
        System.exit(0);
    }

    private static List<Long> fetchBetween(Fetcher fetcher, String url, long bytes, long from, long until)
            throws Exception {
        List<Long> nanos = new ArrayList<>();
        while (true) {
            long begun = System.nanoTime();
            if (begun >= until) {
                return nanos;
            }
            long came = fetcher.fetch(url);
            if (came != bytes) {
                throw new IllegalStateException(came + " bytes, not " + bytes);
            }
            long ended = System.nanoTime();
            if (ended >= from && ended < until) {
                nanos.add(ended - begun);
            }
        }
    }

    /** The JDK's client, with its windows set; its connection window is no smaller than its stream window. */
    private static Fetcher jdk(int window) throws Exception {
        System.setProperty("jdk.httpclient.windowsize", Integer.toString(window));
        System.setProperty("jdk.httpclient.connectionWindowSize", Integer.toString(window));
        System.setProperty("jdk.internal.httpclient.disableHostnameVerification", "true");
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, new TrustManager[] {new AcceptAny()}, null);
        java.net.http.HttpClient client = java.net.http.HttpClient.newBuilder()
                .version(java.net.http.HttpClient.Version.HTTP_2)
                .sslContext(context)
                .build();
        return url -> {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
            HttpResponse<byte[]> response = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            if (response.version() != java.net.http.HttpClient.Version.HTTP_2) {
                throw new IllegalStateException("spoke " + response.version());
            }
            return response.body().length;
        };
    }

    private static Fetcher okhttp() {
        OkHttpClient client = new OkHttpClient.Builder().protocols(List.of(Protocol.H2_PRIOR_KNOWLEDGE)).build();
        byte[] room = new byte[65536];
        return url -> {
            try (Response response = client.newCall(new Request.Builder().url(url).build()).execute()) {
                // The bytes are looked at by nobody, so that all threads may have them in the same place.
                InputStream body = response.body().byteStream();
                long bytes = 0;
                for (int read = body.read(room); read >= 0; read = body.read(room)) {
                    bytes += read;
                }
                return bytes;
            }
        };
    }

    private static Fetcher ahc(int window) {
        AsyncHttpClient client = Dsl.asyncHttpClient(Dsl.config()
                .setHttp2Enabled(true)
                .setHttp2CleartextEnabled(true)
                .setHttp2InitialWindowSize(window));
        return url -> client.prepareGet(url).execute().get().getResponseBodyAsBytes().length;
    }

    private static final class AcceptAny extends X509ExtendedTrustManager {
        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) {}

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type) {}

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, java.net.Socket socket) {}

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, java.net.Socket socket) {}

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, javax.net.ssl.SSLEngine engine) {}

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, javax.net.ssl.SSLEngine engine) {}

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
