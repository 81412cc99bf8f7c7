// The JDK's HttpClient as a peer of the interop suite, over TLS (in cleartext it knows only the upgrade that RFC 9113 dropped).
//
//   java Peer.java get CACERT URL...       prints a line a response: STATUS PROTOCOL BYTES SHA256
//   java Peer.java put CACERT (FILE URL)...  prints a line an upload: STATUS PROTOCOL
//
// Bodies are hashed as they pass and never held.
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.util.HexFormat;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Peer {
    public static void main(String[] args) throws Exception {
        if (args.length < 3) {
            System.err.println("usage: Peer get CACERT URL... | put CACERT (FILE URL)...");
            System.exit(2);
        }
        HttpClient client = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_2)
                .sslContext(trusting(Path.of(args[1])))
                .build();
        if (args[0].equals("get")) {
            for (int i = 2; i < args.length; i++) {
                get(client, URI.create(args[i]));
            }
        } else {
            for (int i = 2; i + 1 < args.length; i += 2) {
                put(client, Path.of(args[i]), URI.create(args[i + 1]));
            }
        }
        // The client's own threads would keep the process.
        System.exit(0);
    }

    private static void get(HttpClient client, URI uri) throws Exception {
        HttpResponse<InputStream> response =
                client.send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofInputStream());
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        long count = 0;
        byte[] chunk = new byte[256 * 1024];
        try (InputStream body = response.body()) {
            for (int read = body.read(chunk); read >= 0; read = body.read(chunk)) {
                digest.update(chunk, 0, read);
                count += read;
            }
        }
        System.out.println(response.statusCode() + " " + response.version() + " " + count + " "
                + HexFormat.of().formatHex(digest.digest()));
    }

    private static void put(HttpClient client, Path file, URI uri) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(uri).PUT(HttpRequest.BodyPublishers.ofFile(file)).build();
        HttpResponse<Void> response = client.send(request, HttpResponse.BodyHandlers.discarding());
        System.out.println(response.statusCode() + " " + response.version());
    }

    private static SSLContext trusting(Path pem) throws Exception {
        KeyStore roots = KeyStore.getInstance(KeyStore.getDefaultType());
        roots.load(null, null);
        try (InputStream in = Files.newInputStream(pem)) {
            roots.setCertificateEntry("root", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(roots);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }
}
